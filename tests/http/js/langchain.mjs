import { ChatOpenAI, OpenAI } from '@langchain/openai'
import { baseURL, model, question, run, story, tooLong } from './cases.mjs'

function chat(more) {
	return new ChatOpenAI({ model, apiKey: 'none', temperature: 0, maxRetries: 0, configuration: { baseURL }, ...more })
}

await run({
	async chat() {
		const { content, usage_metadata: usage, response_metadata } = await chat().invoke(question)
		return { text: content, finish: response_metadata.finish_reason, usage: [usage.input_tokens, usage.output_tokens] }
	},
	async stream() {
		const pieces = []
		let usage
		for await (const part of await chat().stream(question)) {
			pieces.push(part.content)
			usage = part.usage_metadata ?? usage
		}
		return { text: pieces.join(''), n: pieces.length, usage: [usage.input_tokens, usage.output_tokens] }
	},
	async logprobs() {
		const { response_metadata } = await chat({ logprobs: true, topLogprobs: 2 }).invoke(question)
		return response_metadata.logprobs.content.map(({ token, logprob, top_logprobs }) => [token, logprob, top_logprobs.length])
	},
	async stop() {
		return { text: (await chat().invoke(question, { stop: ['Paris'] })).content }
	},
	async n() {
		const ask = async () => (await chat({ n: 3, temperature: 1, maxTokens: 12, modelKwargs: { seed: 1 } }).generate([[['user', story]]]))
			.generations[0].map(({ text }) => text)
		return [await ask(), await ask()]
	},
	async batch() {
		return (await chat().batch(Array(6).fill(question))).map(({ content }) => content)
	},
	async completions() {
		const llm = new OpenAI({ model, apiKey: 'none', temperature: 0, maxTokens: 4, maxRetries: 0, configuration: { baseURL } })
		return { text: await llm.invoke('The capital of France is') }
	},
	wrong: () => chat({ temperature: 5 }).invoke(question),
	unknownModel: () => chat({ model: 'gpt-4o' }).invoke(question),
	tooLong: () => chat().invoke(tooLong),
})
