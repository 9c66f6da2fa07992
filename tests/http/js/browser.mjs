// A person before the page, in a real browser: node browser.mjs URL CHROMIUM FOLDER. Prints what was seen as JSON; leaves
// screenshots in FOLDER. Kills one npu-worker and one gateway of the pipeline behind URL, by what /status says of them.
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { launch } from "./chromium.mjs";

const [url, executablePath, folder] = process.argv.slice(2);
const { context, page, close } = await launch(executablePath, { acceptDownloads: true });
const seen = { errors: [], elsewhere: [] };
page.on("console", (message) => {
	// A killed gateway's connections are reported here too.
	if (message.type() === "error" && !/ERR_|Failed to load resource/.test(message.text())) seen.errors.push(message.text());
});
page.on("pageerror", (error) => seen.errors.push(String(error)));
page.on("request", (request) => {
	if (!request.url().startsWith(url) && !/^(data|blob):/.test(request.url())) seen.elsewhere.push(request.url());
});

const shot = (name) => page.screenshot({ path: join(folder, name + ".png") });
const status = async () => (await fetch(url + "/status")).json();
const body = () => page.locator(".message.assistant .body").last();
const ended = () => page.waitForFunction(() => document.getElementById("send").textContent === "Send");

async function settings(values) {
	await page.keyboard.press("Alt+s");
	for (const [name, value] of Object.entries(values)) await page.locator(`#settings [name=${name}]`).fill(String(value));
	await page.locator("#settings button[value=ok]").click();
	// What was set counts from the dialog's close event on, which comes as a task of its own.
	await page.evaluate(() => new Promise((done) => setTimeout(done, 50)));
}

async function ask(text) {
	await page.locator("#text").fill(text);
	await page.keyboard.press("Enter");
}

// A short answer begins and ends between two looks at the page, so the button's changes are written down.
async function regenerate() {
	await page.evaluate(() => {
		const send = document.getElementById("send");
		window.labels = [];
		new MutationObserver(() => window.labels.push(send.textContent)).observe(send, { childList: true, characterData: true, subtree: true });
	});
	await page.keyboard.press("Alt+r");
	await page.waitForFunction(() => window.labels.includes("Stop") && document.getElementById("send").textContent === "Send");
}

async function question() {
	const answer = await page.goto(url + "/");
	seen.policy = answer.headers()["content-security-policy"];
	await page.waitForFunction(() => document.getElementById("dot").classList.contains("good"));
	seen.model = await page.locator("#model").textContent();
	await shot("empty");
	await settings({ temperature: 0 });
	await ask("What is the capital of France?");
	await page.waitForFunction(() => document.querySelectorAll(".message.assistant .t").length > 5);
	await ended();
	seen.answer = await body().innerText();
	seen.foot = await page.locator(".message.assistant .soft").last().textContent();
	await body().locator(".t", { hasText: "Paris" }).hover();
	seen.tip = await page.locator("#tip").innerText();
	await shot("probabilities");
	await regenerate();
	seen.again = await body().innerText();
	await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: url });
	await page.locator(".message.assistant button", { hasText: "Copy" }).last().click();
	seen.copied = await page.evaluate(() => navigator.clipboard.readText());
}

async function keeping() {
	await settings({ system: "Answer in one word." });
	await page.keyboard.press("Alt+n");
	await ask("Write Python code that prints the numbers from 1 to 10, in a fenced block.");
	await ended();
	await shot("code");
	await page.reload();
	seen.kept = await page.locator("#chats li").count();
	seen.keptAnswer = (await body().innerText()).length > 0;
	await page.keyboard.press("Alt+ArrowDown");
	await page.waitForFunction(() => document.querySelector(".message.assistant .body")?.textContent.includes("Paris"));
	const [file] = await Promise.all([page.waitForEvent("download"), page.getByText("Export JSON").click()]);
	const exported = JSON.parse(await readFile(await file.path(), "utf8"));
	seen.exported = [exported.messages.length, exported.messages[1].tokens.length, exported.model];
	await settings({ system: "" });
}

async function stopping() {
	await page.keyboard.press("Alt+n");
	await ask("Tell me a very long story about a lighthouse.");
	await page.waitForFunction(() => document.querySelectorAll(".message.assistant .t").length > 10);
	// The log is built anew when settings change; the answer that runs goes on in it.
	await settings({ system: "" });
	const before = await page.locator(".message.assistant .t").count();
	await page.waitForFunction((count) => document.querySelectorAll(".message.assistant .t").length > count + 10, before);
	await page.keyboard.press("Escape");
	await ended();
	seen.stopped = await page.locator(".message.assistant .soft").last().textContent();
	for (let tries = 0; (seen.left = (await status()).requests.length) && tries < 100; tries++) await page.waitForTimeout(50);
}

// The gateway that holds the stream dies in its middle: the page goes on at the other one.
async function gatewayDies() {
	// Long enough to be running still when its gateway is looked up; sampled, so that it doesn't repeat itself and fly.
	await settings({ max_tokens: 300, temperature: 1, seed: 1 });
	await page.keyboard.press("Alt+n");
	await ask("Tell me a very long story about a lighthouse.");
	await page.waitForFunction(() => document.querySelectorAll(".message.assistant .t").length > 10);
	const now = await status();
	process.kill(now.processes.find((each) => each.epoch === now.requests[0].gateway).pid, "SIGKILL");
	await ended();
	seen.goneOn = [await body().innerText(), await page.locator(".message.assistant .soft").last().textContent()];
	await regenerate();
	seen.undisturbed = await body().innerText();
	await settings({ max_tokens: "", temperature: 0, seed: "" });
}

async function looks() {
	await page.locator("#theme").click();
	seen.theme = await page.evaluate(() => document.documentElement.dataset.theme);
	await shot("dark");
	await page.setViewportSize({ width: 390, height: 844 });
	await page.locator("#menu").click();
	await page.waitForTimeout(300);
	await shot("phone-menu");
	await page.locator("#chats .open").first().click();
	await page.waitForTimeout(300);
	await shot("phone");
	seen.wide = await page.evaluate(() => document.documentElement.scrollWidth);
}

async function pipeline() {
	await page.setViewportSize({ width: 1200, height: 1000 });
	await page.goto(url + "/ui/pipeline");
	await page.waitForFunction(() => document.querySelectorAll(".process.ready").length >= 5);
	seen.processes = await page.locator(".process").count();
	await page.locator("#start").click();
	await page.waitForFunction(() => document.getElementById("story").textContent.length > 60);
	const now = await status();
	const worker = now.processes.find((each) => each.epoch === now.requests[0].worker);
	process.kill(worker.pid, "SIGKILL");
	await page.waitForFunction(() => /went on at npu-worker/.test(document.getElementById("rows").textContent));
	const length = await page.evaluate(() => document.getElementById("story").textContent.length);
	await page.waitForFunction((before) => document.getElementById("story").textContent.length > before + 100, length);
	await page.waitForTimeout(2500);
	seen.died = await page.evaluate(() => /npu-worker \d+ \(number \d+\) (died|is gone)/.test(document.getElementById("rows").textContent));
	await shot("pipeline");
	await page.setViewportSize({ width: 390, height: 844 });
	await page.waitForTimeout(600);
	await shot("pipeline-phone");
	seen.pipelineWide = await page.evaluate(() => document.documentElement.scrollWidth);
	await page.locator("#start").click();
}

try {
	for (const part of [question, keeping, stopping, gatewayDies, looks, pipeline]) await part();
} catch (error) {
	await shot("failed");
	throw error;
} finally {
	await close();
}
console.log(JSON.stringify(seen));
