// A person before Open WebUI's page, which asks the server behind SERVER: node open-webui.mjs URL SERVER CHROMIUM FOLDER.
// Prints what was seen as JSON; leaves screenshots in FOLDER. The last answer still runs when it ends.
import { join } from "node:path";
import { launch } from "./chromium.mjs";

const [url, server, executablePath, folder] = process.argv.slice(2);
const { context, page, close } = await launch(executablePath);
context.setDefaultTimeout(300000);
const seen = {};

const answer = () => page.locator(".chat-assistant").last();
const running = async () => (await (await fetch(server + "/status")).json()).requests.length;

async function ask(text) {
	await page.goto(url + "/");
	await page.locator("#chat-input").click();
	await page.keyboard.insertText(text);
	await page.keyboard.press("Enter");
}

// Until the answer has so many characters more than now.
async function grows(more) {
	const before = (await answer().innerText()).length;
	await page.waitForFunction((length) => [...document.querySelectorAll(".chat-assistant")].at(-1)?.innerText.length > length, before + more);
}

async function question() {
	await ask("What is the capital of France?");
	await page.getByText("The capital of France is Paris.").waitFor();
	seen.answer = await answer().innerText();
	seen.models = await page.evaluate(async () => {
		const reply = await fetch("/api/models", { headers: { Authorization: "Bearer " + localStorage.token } });
		return (await reply.json()).data.map((model) => model.id);
	});
}

async function stopping() {
	await ask("Tell me a very long story about a lighthouse.");
	await grows(100);
	await grows(100);
	await page.locator("button[aria-label=Stop]").click();
	for (let tries = 0; (seen.left = await running()) && tries < 600; tries++) await page.waitForTimeout(50);
	seen.stopped = await answer().innerText();
}

async function tooLong() {
	await ask("x ".repeat(9000));
	await answer().getByText("maximum context length").waitFor();
	seen.tooLong = await answer().innerText();
}

async function goesOn() {
	await ask("Tell me a very long story about a lighthouse.");
	await grows(100);
}

// What is new in this version is shown once, over everything.
await page.addLocatorHandler(page.getByRole("button", { name: "Okay, Let's Go!" }), (button) => button.click());
try {
	for (const part of [question, stopping, tooLong, goesOn]) {
		await part();
		await page.screenshot({ path: join(folder, part.name + ".png") });
	}
} catch (error) {
	await page.screenshot({ path: join(folder, "failed.png") });
	throw error;
} finally {
	await close();
}
console.log(JSON.stringify(seen));
