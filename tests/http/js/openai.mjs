import OpenAI from 'openai'
import { baseURL, model, question, run, story, tooLong } from './cases.mjs'

const client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 })
const messages = [{ role: 'user', content: question }]

async function chat(more) {
	const answer = await client.chat.completions.create({ model, messages, temperature: 0, ...more })
	return answer
}

await run({
	async models() {
		const names = []
		for await (const { id } of client.models.list()) names.push(id)
		return names
	},
	async chat() {
		const { choices: [{ message, finish_reason }], usage } = await chat({})
		return { text: message.content, finish: finish_reason, usage: [usage.prompt_tokens, usage.completion_tokens] }
	},
	async stream() {
		const pieces = []
		let usage
		for await (const part of await chat({ stream: true, stream_options: { include_usage: true } })) {
			if (part.choices.length) pieces.push(part.choices[0].delta.content ?? '')
			usage = part.usage ?? usage
		}
		return { text: pieces.join(''), n: pieces.length, usage: [usage.prompt_tokens, usage.completion_tokens] }
	},
	async helper() {
		return { text: await client.chat.completions.stream({ model, messages, temperature: 0 }).finalContent() }
	},
	async logprobs() {
		const { choices: [{ logprobs }] } = await chat({ logprobs: true, top_logprobs: 2 })
		return logprobs.content.map(({ token, logprob, top_logprobs }) => [token, logprob, top_logprobs.length])
	},
	async stop() {
		return { text: (await chat({ stop: ['Paris'] })).choices[0].message.content }
	},
	async n() {
		const ask = async () => (await chat({ messages: [{ role: 'user', content: story }], n: 3, seed: 1, temperature: 1, max_tokens: 12 }))
			.choices.map(({ message }) => message.content)
		return [await ask(), await ask()]
	},
	async completions() {
		const answer = await client.completions.create({ model, prompt: 'The capital', echo: true, logprobs: 1, max_tokens: 2, temperature: 0 })
		return { text: answer.choices[0].text, logprobs: answer.choices[0].logprobs.token_logprobs }
	},
	wrong: () => chat({ temperature: 5 }),
	unknownModel: () => chat({ model: 'gpt-4o' }),
	tooLong: () => chat({ messages: [{ role: 'user', content: tooLong }], stream: true }),
	async leaves() {
		const stream = await chat({ messages: [{ role: 'user', content: story }], stream: true, ignore_eos: true })
		for await (const _ of stream) break
		stream.controller.abort()
		return 'left'
	},
})
