// What the scripts here share: `node SCRIPT BASE_URL MODEL` runs each case and prints {case: result or {error}}.
export const [baseURL, model] = process.argv.slice(2)
export const question = 'What is the capital of France?'
export const story = 'Tell me a story.'
export const tooLong = 'x '.repeat(9000)

// What a user sees of a failure: the client's own class, and what it kept of the server's answer.
function described(error) {
	const inner = error.lastError ?? error
	return {
		error: inner.constructor.name,
		status: inner.status ?? inner.statusCode,
		code: inner.code ?? inner.lc_error_code,
		param: inner.param,
		message: inner.message,
	}
}

export async function run(cases) {
	const results = {}
	for (const [name, ask] of Object.entries(cases)) {
		try {
			results[name] = await ask()
		} catch (error) {
			results[name] = described(error)
		}
	}
	console.log(JSON.stringify(results))
}
