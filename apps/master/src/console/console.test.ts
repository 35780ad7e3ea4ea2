// holds: console-served

import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startTestMaster, type TestMaster } from "../../test/test-master.ts";

let master: TestMaster;

beforeAll(async () => {
  master = await startTestMaster();
});
afterAll(() => master.master.close());

const get = (path: string, headers: Record<string, string> = {}) =>
  fetch(`${master.url}${path}`, { headers, redirect: "manual" });

/** The first asset that the page names, as its path. */
async function firstAsset(): Promise<string> {
  const page = await (await get("/console/")).text();
  return /src="(\/console\/assets\/[^"]+\.js)"/.exec(page)?.[1] ?? "";
}

describe("the console's files", () => {
  it("console: the page allows its own files and this master's API alone", async () => {
    const page = await get("/console/");
    expect(page.status).toBe(200);
    expect(page.headers.get("content-type")).toBe("text/html; charset=utf-8");
    expect(page.headers.get("cache-control")).toBe("no-cache");
    const policy = page.headers.get("content-security-policy") ?? "";
    expect(policy).toContain("default-src 'none'; script-src 'self'; style-src 'self'");
    expect(policy).toContain("connect-src 'self'");
    expect(policy).not.toMatch(/unsafe|http:|\*/);
    expect(await page.text()).not.toMatch(/(?:src|href)="(?!\/console\/)|<script>|<style|style=/);
  });

  it("console: every path of a page is the page, with or without a slash", async () => {
    const page = await (await get("/console")).text();
    for (const path of ["/console/", "/console/jobs", "/console/jobs/job_1?part=logs"]) {
      expect(await (await get(path)).text(), path).toBe(page);
    }
  });

  it("console: an asset is kept by browsers, and a known page is not sent again", async () => {
    const asset = await get(await firstAsset());
    expect(asset.headers.get("content-type")).toBe("text/javascript; charset=utf-8");
    expect(asset.headers.get("cache-control")).toBe("public, max-age=31536000, immutable");
    expect(asset.headers.get("x-content-type-options")).toBe("nosniff");
    const etag = (await get("/console/")).headers.get("etag") ?? "";
    const again = await get("/console/", { "if-none-match": etag });
    expect([again.status, await again.text()]).toEqual([304, ""]);
  });

  it("console: an asset is the same with and without gzip", async () => {
    const path = await firstAsset();
    const plain = await get(path, { "accept-encoding": "identity" });
    expect(plain.headers.get("content-encoding")).toBe(null);
    // fetch unpacks what it asked for, and gives the header as it was.
    const zipped = await get(path, { "accept-encoding": "gzip" });
    expect(zipped.headers.get("content-encoding")).toBe("gzip");
    const sent = Number(zipped.headers.get("content-length"));
    const text = Buffer.from(await plain.arrayBuffer());
    expect(sent).toBeLessThan(text.length / 2);
    expect(Buffer.from(await zipped.arrayBuffer()).equals(text)).toBe(true);
    expect(() => gunzipSync(text)).toThrow();
  });

  it.each([
    "/console/assets/none.js",
    "/console/..%2f..%2fpackage.json.js",
    "/console/%2e%2e/%2e%2e/main.js",
    "/console/assets/..%2f..%2fmain.d.ts.js",
  ])("console: %s is no file of it", async (path) => {
    const reply = await get(path);
    expect(reply.status).toBe(404);
    expect(await reply.text()).not.toContain("import ");
  });

  it("console: the address of a master leads browsers to it, and programs nowhere", async () => {
    const shown = await get("/", { accept: "text/html,application/xhtml+xml" });
    expect([shown.status, shown.headers.get("location")]).toEqual([302, "/console/"]);
    expect((await get("/")).status).toBe(404);
  });
});
