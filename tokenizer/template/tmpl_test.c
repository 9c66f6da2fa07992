#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* cmocka wants the four above first. */
#include <pthread.h>
#include <cmocka.h>

#include "base/buf.h"
#include "tokenizer/template/tmpl.h"

struct rendered {
	enum svc_code code;
	struct svc_err err;
	struct tmpl_output output;
};

/* kwargs: JSON text, or NULL. */
static struct rendered render_with(const char *template, const char *kwargs,
				   struct tmpl_limits limits)
{
	struct rendered r = {0};
	struct tmpl *tmpl = NULL;
	json_t *parsed = kwargs ? json_loads(kwargs, 0, NULL) : NULL;
	json_t *messages = json_object_get(parsed, "messages");
	json_incref(messages);
	if (messages)
		json_object_del(parsed, "messages");
	struct tmpl_input input = {.messages = messages,
				   .kwargs = parsed,
				   .bos_token = span_of("<s>"),
				   .now_s = 1753700400,
				   .limits = limits};
	r.code = tmpl_compile(span_of(template), &tmpl, &r.err);
	if (r.code == SVC_OK)
		r.code = tmpl_render(tmpl, &input, &r.output, &r.err);
	tmpl_free(tmpl);
	json_decref(messages);
	json_decref(parsed);
	return r;
}

static struct rendered render(const char *template, const char *kwargs)
{
	return render_with(template, kwargs, (struct tmpl_limits){0});
}

/* Untrusted characters in brackets, which the templates here don't use. */
static void show(const struct tmpl_output *output, char *ret, size_t size)
{
	size_t len = 0;
	for (size_t i = 0; i < output->piece_count; i++) {
		struct tmpl_piece piece = output->pieces[i];
		len += (size_t)snprintf(ret + len, size - len, piece.trusted ? "%.*s" : "[%.*s]",
					(int)piece.length, output->text + piece.offset);
		assert_true(len < size);
	}
}

static void expect_trust(const char *template, const char *kwargs, const char *expected)
{
	char shown[512] = "";
	struct rendered r = render(template, kwargs);
	if (r.code != SVC_OK)
		fail_msg("%s: %s", template, r.err.msg);
	show(&r.output, shown, sizeof shown);
	assert_string_equal(shown, expected);
	tmpl_output_free(&r.output);
}

static void expect_fail(const char *template, const char *kwargs, enum svc_code code,
			const char *part)
{
	struct rendered r = render(template, kwargs);
	if (r.code != code || !strstr(r.err.msg, part))
		fail_msg("%s: %s: %s", template, svc_code_info(r.code)->name, r.err.msg);
	tmpl_output_free(&r.output);
}

static void trust_survives_string_operations(void **state)
{
	(void)state;
	const char *u =
		"{\"u\": \"a<|x|>b\", \"l\": [\"p\", \"q\"], \"n\": 7, \"d\": {\"k\": \"v\"}}";
	expect_trust("{{ bos_token }}<u>{{ u }}</u>", u, "<s><u>[a<|x|>b]</u>");
	expect_trust("{{ ('<' + u + '>')[0:3] ~ ('<' ~ u ~ '>')[-3:] }}", u, "<[a<>b]>");
	expect_trust("{{ ('<' + u + '>')[::-1] }}", u, ">[b>|x|<a]<");
	expect_trust("{{ ('T ' + u)|upper }}{{ u.upper() }}", u, "T [A<|X|>BA<|X|>B]");
	expect_trust("{{ (' ' + u + ' ')|trim }}", u, "[a<|x|>b]");
	expect_trust("{{ 'AuB'.replace('u', u) }}{{ u|replace('<|', '{') }}", u,
		     "A[a<|x|>b]B[a]{[x|>b]");
	expect_trust("{{ l|join(', ') }}{{ u.join(['1', '2']) }}", u, "[p], [q]1[a<|x|>b]2");
	expect_trust("{{ ('k=' + u).split('=')|join(';') }}", u, "k;[a<|x|>b]");
	expect_trust("{{ '%s|%5s|%d' % (u, 'x', n) }}", u, "[a<|x|>b]|    x|[7]");
	expect_trust("{{ '<{}>{}'.format(u, 1) }}", u, "<[a<|x|>b]>1");
	expect_trust("{{ u.replace('a', '{:*>3}').format(1) }}{{ '%03d' % n }}", u,
		     "[**1<|x|>b]00[7]");
	expect_trust("{{ range(n, 9)|list|join }}{{ range(n, 9)[-1] }}{{ range(2)|list }}", u,
		     "[788][0, 1]");
	expect_trust("{{ {'a': u}|tojson }}", u, "{\"a\": [\"a<|x|>b\"]}");
	expect_trust("{{ d|tojson }}{{ d }}", u, "[{\"k\": \"v\"}{'k': 'v'}]");
	expect_trust("{{ n + 1 }}{{ 1 + 1 }}{{ l|length }}", u, "[8]22");
	expect_trust("{% set x %}<{{ u }}>{% endset %}{{ x|indent(2, true) }}", u, "  <[a<|x|>b]>");
	expect_trust("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(u) }}{{ m('t') }}", u,
		     "<[a<|x|>b]><t>");
	expect_trust("{{ u|e }}{{ u|capitalize }}{{ (u + 'T')|title }}", u,
		     "[a&lt;|x|&gt;bA<|x|>bA<|x|>b]t");
	expect_trust("{% for c in '<' + u[0] %}{{ c }}{% endfor %}", u, "<[a]");
	expect_trust("{{ '-'.join(('a' + u[0] + 'b')|list) }}", u, "a-[a]-b");
	expect_trust("{{ (u + 'x')|truncate(4, true, '', 0) }}{{ u|int(5) }}{{ '7'|int }}", u,
		     "[a<|x]57");
}

static void a_known_role_is_trusted(void **state)
{
	(void)state;
	const char *t = "{% for m in messages %}<|{{ m.role }}|>{% endfor %}";
	expect_trust(t, "{\"messages\": [{\"role\": \"user\"}, {\"role\": \"assistant\"}]}",
		     "<|user|><|assistant|>");
	expect_trust(t, "{\"messages\": [{\"role\": \"im_end\"}]}", "<|[im_end]|>");
	/* Elsewhere the same word is the request's. */
	expect_trust("{% for m in messages %}{{ m.content }}{% endfor %}",
		     "{\"messages\": [{\"role\": \"user\", \"content\": \"user\"}]}", "[user]");
}

static void errors_name_line_and_construct(void **state)
{
	(void)state;
	expect_fail("a\n{{ x.y }}", NULL, SVC_INVALID, "line 2: 'x' is undefined");
	expect_fail("\n\n{% include 'x' %}", NULL, SVC_UNSUPPORTED,
		    "line 3: not supported: the tag");
	expect_fail("{{ 1|urlize }}", NULL, SVC_UNSUPPORTED, "the filter 'urlize'");
	expect_fail("{{ 1 is weird }}", NULL, SVC_UNSUPPORTED, "the test 'weird'");
	expect_fail("{{ 'a'.encode() }}", NULL, SVC_UNSUPPORTED, "str.encode");
	expect_fail("{% if true %}{{ 1|urlize }}{% endif %}", NULL, SVC_UNSUPPORTED, "urlize");
	expect_fail("{% for x in [1] %}", NULL, SVC_INVALID, "endfor");
	expect_fail("{% break %}", NULL, SVC_INVALID, "outside a loop");
	expect_fail("{{ 'a' }", NULL, SVC_INVALID, "unexpected '}'");
	expect_fail("{{ [].append(1) }}", NULL, SVC_INVALID, "'append' would change");
	expect_fail("{{ '\\ud800' }}", NULL, SVC_INVALID, "no character");
	expect_fail("{{ 9999999999999999999 }}", NULL, SVC_UNSUPPORTED, "64 bits");
	expect_fail("\xff", NULL, SVC_INVALID, "byte 0 is not UTF-8");
	expect_fail("{{ raise_exception('no <system> here') }}", NULL, SVC_INVALID,
		    "no <system> here");
	expect_fail("x", "{\"messages\": {}}", SVC_INVALID, "not an array");
	expect_fail("{{ messages }}", "{\"messages\": [1]}", SVC_INVALID, "messages[0]");
	/* A filter that is never reached may not exist. */
	expect_trust("{{ 'urlize' is filter }}{{ 1|urlize if false else 2 }}", NULL, "False2");
	struct rendered r = render("{{ raise_exception('msg') }}", NULL);
	assert_string_equal(r.err.msg, "msg");
}

static void limits_stop_every_trick(void **state)
{
	(void)state;
	static const char *const tricks[] = {
		"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
		"{{ 'a' * 99999999999 }}",
		"{{ [1] * 99999999999 }}",
		"{% set n = namespace(x='abcdefgh') %}{% for i in range(999) %}"
		"{% set n.x = n.x + n.x %}{% endfor %}",
		"{% set n = namespace(x=[1]) %}{% for i in range(999) %}"
		"{% set n.x = n.x + n.x %}{% endfor %}",
		"{% set n = namespace(x=[1]) %}{% for i in range(90) %}"
		"{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
		"{% set n = namespace(x=[1]) %}{% for i in range(90) %}"
		"{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x|tojson|length }}",
		"{% set n = namespace(x=(1,)) %}{% for i in range(90) %}"
		"{% set n.x = (n.x, n.x) %}{% endfor %}{{ {n.x: 1} }}",
		"{% set n = namespace(x=(1,)) %}{% for i in range(9999) %}"
		"{% set n.x = (n.x,) %}{% endfor %}{{ {n.x: 1} }}",
		"{% set n = namespace(x=1) %}{% for i in range(9999) %}"
		"{% set n.x = [n.x] %}{% endfor %}{{ n.x == [n.x] }}",
		"{% set n = namespace() %}{% set n.n = n %}{{ n }}",
		"{{ ('a' * 9999).replace('', 'b' * 9999) }}",
		"{{ ('a' * 9999).replace('a', 'b' * 99999) }}",
		"{{ (['a' * 9999] * 99999)|join('b') }}",
		"{{ '%99999999999d' % 1 }}",
		"{{ '{:>99999999999}'.format(1) }}",
		"{{ 'a'.center(99999999999) }}",
		"{{ 'a'|center(99999999999) }}",
		"{{ 'a'.zfill(99999999999) }}",
		"{{ 'a'|indent(99999999999, true) }}",
		"{{ [1]|tojson(indent=99999999999) }}",
		"{{ [1]|batch(99999999999, 1)|list }}",
		"{{ [1]|slice(99999999999)|list }}",
		"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"{% macro m(x) %}{{ m(x + x) }}{% endmacro %}{{ m('aa') }}",
		"{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
		"{% set s = 'ab' * 500000 %}{% for i in range(99999) %}{{ s|upper|length }}{% "
		"endfor %}",
		"{% set s = 'a' * 2000000 %}{{ s.rfind('a' * 1000000 ~ 'b') }}"
		"{% for i in range(99) %}{{ s.rfind('b' ~ 'a' * 1000000) }}{% endfor %}",
		"{% for i in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
	};
	for (size_t i = 0; i < sizeof tricks / sizeof *tricks; i++) {
		struct rendered r = render_with(
			tricks[i], NULL,
			(struct tmpl_limits){.steps = 1000000, .memory_bytes = 64u << 20});
		if (r.code != SVC_TOO_LARGE)
			fail_msg("%s: %s %s", tricks[i], svc_code_info(r.code)->name, r.err.msg);
		assert_non_null(strstr(r.err.msg, "the limit of one rendering"));
	}
}

static void each_limit_is_named(void **state)
{
	(void)state;
	const char *loop = "{% for i in range(1000) %}x{% endfor %}";
	struct rendered r = render_with(loop, NULL, (struct tmpl_limits){.steps = 500});
	assert_non_null(strstr(r.err.msg, "500 steps"));
	r = render_with(loop, NULL, (struct tmpl_limits){.output_bytes = 999});
	assert_non_null(strstr(r.err.msg, "999 bytes"));
	r = render_with(loop, NULL, (struct tmpl_limits){.memory_bytes = 3000});
	assert_non_null(strstr(r.err.msg, "3000 bytes of memory"));
	r = render_with("{{ [[[[1]]]] }}", NULL, (struct tmpl_limits){.depth = 4});
	assert_non_null(strstr(r.err.msg, "deeper than 4"));
	r = render_with(loop, NULL, (struct tmpl_limits){.output_bytes = 1000, .steps = 9000});
	assert_int_equal(r.code, SVC_OK);
	tmpl_output_free(&r.output);
}

static int thread_failed; /* its address is what a thread returns that saw a failure */

/* Deep nesting is refused by the parser or the evaluator, never by the stack: half a megabyte. */
static void *nest(void *unused)
{
	(void)unused;
	static const struct {
		const char *open, *middle, *close;
		int times;
	} nests[] = {
		{"{{ ", "(", "1", 3000},
		{"{{ ", "[", "1", 3000},
		{"{{ ", "not ", "1 }}", 3000},
		{"{{ ", "-", "1 }}", 3000},
		{"{{ 1", " + 1", " }}", 9000},
		{"{{ x", ".a", " }}", 9000},
		{"{{ x", "|list", " }}", 9000},
		{"{{ 1", " if 1 else 1", " }}", 3000},
		{"{{ 1", " if 1", " }}", 3000},
		{"", "{% if 1 %}", "", 3000},
		{"", "{% for x in [1] %}", "", 3000},
		{"", "{% set x %}", "", 3000},
		{"{% set ", "(", "x", 3000},
	};
	for (size_t i = 0; i < sizeof nests / sizeof *nests; i++) {
		struct svc_err err;
		struct tmpl *tmpl = NULL;
		struct buf text = {0};
		buf_print(&text, "%s", nests[i].open);
		for (int n = 0; n < nests[i].times; n++)
			buf_print(&text, "%s", nests[i].middle);
		buf_print(&text, "%s", nests[i].close);
		enum svc_code code = tmpl_compile((struct span){text.ptr, text.len}, &tmpl, &err);
		buf_free(&text);
		tmpl_free(tmpl);
		if (code == SVC_OK)
			return &thread_failed;
	}
	return NULL;
}

static void nesting_is_bounded(void **state)
{
	(void)state;
	pthread_t thread;
	pthread_attr_t attr;
	void *result;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, (size_t)1 << 20);
	assert_int_equal(pthread_create(&thread, &attr, nest, NULL), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	pthread_attr_destroy(&attr);
	assert_null(result);
}

static void *recurse(void *unused)
{
	(void)unused;
	/* Each of these goes as deep as the limit lets it, through other functions. */
	static const char *const deep[] = {
		"{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}",
		"{% macro m() %}{% call m() %}{{ m() }}{% endcall %}"
		"{{ caller() if caller }}{% endmacro %}{{ m() }}",
		"{% macro m() %}{% filter upper %}{{ [m()]|map('upper')|list }}{% endfilter %}"
		"{% endmacro %}{{ m() }}",
		"{% for x in [1] recursive %}{{ '%s' % loop([1]) }}{% endfor %}",
		"{% set n = namespace(x=1) %}{% for i in range(9999) %}{% set n.x = [{'a': n.x}] %}"
		"{% endfor %}{{ n.x|tojson }}",
		"{% set n = namespace(x=1) %}{% for i in range(9999) %}{% set n.x = [(n.x,)] %}"
		"{% endfor %}{{ [n.x, n.x]|sort }}{{ n.x }}",
	};
	for (size_t i = 0; i < sizeof deep / sizeof *deep; i++) {
		struct rendered r = render(deep[i], NULL);
		if (r.code != SVC_TOO_LARGE)
			return &thread_failed;
	}
	return NULL;
}

static void recursion_is_bounded(void **state)
{
	(void)state;
#ifdef LOCKSTEP_SANITIZED
	size_t stack = (size_t)4 << 20; /* a sanitizer's frames are several times as large */
#else
	size_t stack = (size_t)1 << 20;
#endif
	pthread_t thread;
	pthread_attr_t attr;
	void *result;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, stack);
	assert_int_equal(pthread_create(&thread, &attr, recurse, NULL), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	pthread_attr_destroy(&attr);
	assert_null(result);
}

static void *render_often(void *argument)
{
	const struct tmpl *tmpl = argument;
	struct tmpl_input input = {.bos_token = span_of("<s>")};
	for (int i = 0; i < 300; i++) {
		struct tmpl_output output = {0};
		struct svc_err err;
		if (tmpl_render(tmpl, &input, &output, &err) != SVC_OK ||
		    strcmp(output.text, "<s>0-1-2-A b1.5{'x': (1, None)}") != 0)
			return argument;
		tmpl_output_free(&output);
	}
	return NULL;
}

static void one_template_serves_several_threads(void **state)
{
	(void)state;
	struct svc_err err;
	struct tmpl *tmpl = NULL;
	const char *text = "{% set ns = namespace(n=0) %}{{ bos_token }}"
			   "{% for i in range(3) %}{{ ns.n }}-{% set ns.n = ns.n + 1 %}{% endfor %}"
			   "{{ 'a b'|capitalize }}{{ '1.5'|float }}{{ {'x': (1, none)} }}";
	assert_int_equal(tmpl_compile(span_of(text), &tmpl, &err), SVC_OK);
	pthread_t threads[4];
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, render_often, tmpl), 0);
	for (size_t i = 0; i < 4; i++) {
		void *result;
		assert_int_equal(pthread_join(threads[i], &result), 0);
		assert_null(result);
	}
	tmpl_free(tmpl);
}

static void clock_is_the_requests(void **state)
{
	(void)state;
	expect_trust("{{ strftime_now('%d %b %Y, %A %H:%M:%S %j %-d %U %V %G %u %y %I%p %e') }}",
		     NULL, "28 Jul 2025, Monday 11:00:00 209 28 30 31 2025 1 25 11AM 28");
	expect_fail("{{ strftime_now('%Q') }}", NULL, SVC_UNSUPPORTED, "%Q");
}

static void a_template_says_what_it_reads(void **state)
{
	(void)state;
	struct svc_err err;
	struct tmpl *tmpl = NULL;
	const char *text = "{% if tools %}{{ messages[0]['content'] }}{{ x.thinking }}{% endif %}";
	assert_int_equal(tmpl_compile(span_of(text), &tmpl, &err), SVC_OK);
	assert_true(tmpl_mentions(tmpl, "tools"));
	assert_true(tmpl_mentions(tmpl, "thinking"));
	assert_true(tmpl_mentions(tmpl, "content"));
	assert_false(tmpl_mentions(tmpl, "documents"));
	assert_false(tmpl_takes_parts(tmpl));
	tmpl = tmpl_free(tmpl);
	assert_null(tmpl);
}

static void messages_are_prepared_as_asked(void **state)
{
	(void)state;
	struct svc_err err;
	struct tmpl *tmpl = NULL;
	const char *text = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}"
			   "{{ c.function.arguments is mapping }}{{ c.function.arguments.a }}"
			   "{% endfor %};{% endfor %}";
	json_t *messages = json_loads(
		"[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"},"
		"  {\"type\": \"text\", \"text\": \"b\"}]},"
		" {\"role\": \"assistant\", \"content\": null,"
		"  \"tool_calls\": [{\"function\": {\"arguments\": \"{\\\"a\\\": \\\"v\\\"}\"}}]}]",
		0, NULL);
	struct tmpl_input input = {
		.messages = messages, .join_parts = true, .parse_arguments = true};
	struct tmpl_output output = {0};
	assert_int_equal(tmpl_compile(span_of(text), &tmpl, &err), SVC_OK);
	assert_int_equal(tmpl_render(tmpl, &input, &output, &err), SVC_OK);
	assert_string_equal(output.text, "a\nb;Truev;");
	tmpl_output_free(&output);
	tmpl_free(tmpl);
	json_decref(messages);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trust_survives_string_operations),
		cmocka_unit_test(a_known_role_is_trusted),
		cmocka_unit_test(errors_name_line_and_construct),
		cmocka_unit_test(limits_stop_every_trick),
		cmocka_unit_test(each_limit_is_named),
		cmocka_unit_test(nesting_is_bounded),
		cmocka_unit_test(recursion_is_bounded),
		cmocka_unit_test(one_template_serves_several_threads),
		cmocka_unit_test(clock_is_the_requests),
		cmocka_unit_test(a_template_says_what_it_reads),
		cmocka_unit_test(messages_are_prepared_as_asked),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
