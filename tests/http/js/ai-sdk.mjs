import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, streamText } from 'ai'
import { baseURL, model, question, run, story, tooLong } from './cases.mjs'

const provider = createOpenAICompatible({ name: 'lockstep', baseURL, apiKey: 'none', includeUsage: true })
globalThis.AI_SDK_LOG_WARNINGS = false

function asked(prompt, more) {
	return { model: provider(model), prompt, temperature: 0, maxRetries: 0, ...more }
}

await run({
	async chat() {
		const { text, finishReason, usage } = await generateText(asked(question))
		return { text, finish: finishReason, usage: [usage.inputTokens, usage.outputTokens] }
	},
	async stream() {
		const result = streamText(asked(question))
		const pieces = []
		for await (const piece of result.textStream) pieces.push(piece)
		const usage = await result.usage
		return { text: pieces.join(''), n: pieces.length, usage: [usage.inputTokens, usage.outputTokens] }
	},
	async stop() {
		return { text: (await generateText(asked(question, { stopSequences: ['Paris'] }))).text }
	},
	async seed() {
		const ask = async (seed) => (await generateText(asked(story, { temperature: 1, seed, maxOutputTokens: 12 }))).text
		return [await ask(1), await ask(1), await ask(2)]
	},
	async logprobs() {
		// This client has no logprobs of its own: it hands the parameters on and shows the answer's body.
		const { response } = await generateText(asked(question, { providerOptions: { lockstep: { logprobs: true, top_logprobs: 2 } } }))
		return response.body.choices[0].logprobs.content.map(({ token, logprob, top_logprobs }) => [token, logprob, top_logprobs.length])
	},
	async n() {
		const { response } = await generateText(asked(story, { temperature: 1, seed: 1, maxOutputTokens: 12, providerOptions: { lockstep: { n: 3 } } }))
		return response.body.choices.map(({ message }) => message.content)
	},
	async completions() {
		return { text: (await generateText({ ...asked('The capital of France is'), model: provider.completionModel(model), maxOutputTokens: 4 })).text }
	},
	wrong: () => generateText(asked(question, { temperature: 5 })),
	unknownModel: () => generateText({ ...asked(question), model: provider('gpt-4o') }),
	async tooLong() {
		let seen
		const result = streamText(asked(tooLong, { onError: ({ error }) => { seen = error } }))
		await result.consumeStream()
		throw seen
	},
	async leaves() {
		const controller = new AbortController()
		const result = streamText(asked(story, { abortSignal: controller.signal, providerOptions: { lockstep: { ignore_eos: true } } }))
		for await (const _ of result.textStream) break
		controller.abort()
		return 'left'
	},
})
