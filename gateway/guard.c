#include "gateway/guard.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <strings.h>

bool gw_list_has(const char *list, struct span value)
{
	struct span rest = span_of(list);
	while (rest.len) {
		const char *comma = memchr(rest.ptr, ',', rest.len);
		struct span entry = {rest.ptr, comma ? (size_t)(comma - rest.ptr) : rest.len};
		if (span_is(entry, "*") || (entry.len == value.len && entry.len &&
					    strncasecmp(entry.ptr, value.ptr, entry.len) == 0))
			return true;
		size_t used = entry.len + (comma ? 1 : 0);
		rest = (struct span){rest.ptr + used, rest.len - used};
	}
	return false;
}

static struct span without_port(struct span host)
{
	const char *end;
	if (host.len && host.ptr[0] == '[') {
		end = memchr(host.ptr, ']', host.len);
		return end ? (struct span){host.ptr + 1, (size_t)(end - host.ptr) - 1} : host;
	}
	end = memchr(host.ptr, ':', host.len);
	return (struct span){host.ptr, end ? (size_t)(end - host.ptr) : host.len};
}

static bool is_loopback(struct span name)
{
	char text[INET6_ADDRSTRLEN];
	struct in_addr v4;
	struct in6_addr v6;
	if (name.len == 9 && strncasecmp(name.ptr, "localhost", 9) == 0)
		return true;
	if (name.len == 0 || name.len >= sizeof text)
		return false;
	memcpy(text, name.ptr, name.len);
	text[name.len] = 0;
	if (inet_pton(AF_INET, text, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127;
	return inet_pton(AF_INET6, text, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool gw_host_is_allowed(struct span host, const char *allowed)
{
	struct span name = without_port(host);
	return is_loopback(name) || gw_list_has(allowed, name);
}
