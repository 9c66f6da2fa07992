// A browser for a script: nothing of its own looks for the network, and close() leaves nothing behind.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
	"--disable-component-update", "--disable-sync"];

export async function launch(executablePath, options) {
	const home = mkdtempSync(join(tmpdir(), "browser-"));
	const context = await chromium.launchPersistentContext(home, { executablePath, headless: true, args: ARGUMENTS,
		viewport: { width: 1200, height: 800 }, colorScheme: "light", ...options });
	context.setDefaultTimeout(60000);
	async function close() {
		await context.close();
		rmSync(home, { recursive: true, force: true });
	}
	return { context, page: context.pages()[0], close };
}
