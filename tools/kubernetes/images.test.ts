// holds: kube-images

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { installedProgram } from "./kube-tools.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const MAX_CONTROL_BYTES = 250e6;
/** The first bytes of a program, and the machines that it may name. */
const ELF = 0x7f454c46;
const X86_64 = 62;
const AARCH64 = 183;
const why =
  process.env["HEDDLE_IMAGE_BUILDS"] === undefined
    ? "HEDDLE_IMAGE_BUILDS is not set; its value goes to build.sh, as --from-debian"
    : ["buildah", "mmdebstrap"]
        .filter((name) => installedProgram(name) === undefined)
        .map((name) => `${name} is not installed`)[0];
if (why !== undefined) console.log(`tests of images are skipped: ${why}`);

const folder = mkdtempSync(join(tmpdir(), "heddle-images-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** Builds an image, by default that of the masters; returns the folder that has it. */
function build(name: string, ...args: readonly string[]): string {
  const out = join(folder, name);
  const flags = (process.env["HEDDLE_IMAGE_BUILDS"] ?? "").split(" ").filter(Boolean);
  const script = join(ROOT, "deploy/images/build.sh");
  const env = { ...process.env, HEDDLE_IMAGES: "heddle-twice" };
  const target = args.length > 0 ? args : ["control"];
  execFileSync(script, [...flags, "--out", out, ...target], { env, stdio: "pipe" });
  return out;
}

const fileOf = (archive: string, path: string) =>
  execFileSync("tar", ["-xOf", archive, path], { maxBuffer: 2 ** 30 });

interface Archive {
  readonly Config: string;
  readonly Layers: readonly string[];
}

function archiveOf(out: string, target = "control"): Archive & { readonly file: string } {
  const file = join(out, `${target}.tar`);
  const [image] = JSON.parse(fileOf(file, "manifest.json").toString()) as [Archive];
  return { ...image, file };
}

describe.skipIf(why !== undefined)("images", { timeout: 1_200_000 }, () => {
  it("images: two builds of a commit have the same digest and bill of materials", () => {
    const [first, second] = [build("first"), build("second")];
    const [one, other] = [archiveOf(first), archiveOf(second)];
    expect(other.Config).toBe(one.Config);
    expect(other.Layers).toEqual(one.Layers);
    const config = fileOf(one.file, one.Config);
    // The name of a configuration is its digest; it has those of the layers.
    expect(one.Config).toContain(createHash("sha256").update(config).digest("hex"));
    const { config: run } = JSON.parse(config.toString()) as { config: Record<string, unknown> };
    expect(run["User"]).toBe("10001:10001");
    expect(run["Labels"]).toMatchObject({ "org.opencontainers.image.licenses": "Apache-2.0" });
    const bills = [first, second].map((out) => readFileSync(join(out, "control.cdx.json"), "utf8"));
    expect(bills[1]).toBe(bills[0]);
    const { components } = JSON.parse(bills[0] ?? "") as { components: { purl: string }[] };
    const names = components.map(({ purl }) => purl).join("\n");
    for (const part of [/^pkg:deb\/debian\/libc6@/m, /^pkg:npm\/koffi@/m, /^pkg:generic\/node@24/m])
      expect(names).toMatch(part);
    expect(names).toMatch(/^pkg:npm\/%40nestjs\/core@/m);
    expect(names).not.toMatch(/^pkg:(deb\/debian\/(gcc|make|git)|npm\/(npm|vitest))@/m);
    const sizes = one.Layers.map((layer) => fileOf(one.file, layer).byteLength);
    expect(sizes.reduce((sum, size) => sum + size)).toBeLessThan(MAX_CONTROL_BYTES);
  });

  it("images: one for another architecture has programs of that one alone", () => {
    const isAmd64 = process.arch === "x64";
    const [other, machine] = isAmd64 ? (["arm64", AARCH64] as const) : (["amd64", X86_64] as const);
    const out = build("other", "--arch", other, "worker");
    const { file, Config, Layers } = archiveOf(out, `worker-${other}`);
    expect(JSON.parse(fileOf(file, Config).toString())).toMatchObject({ architecture: other });
    const root = join(folder, "root");
    mkdirSync(root);
    for (const layer of Layers) {
      const extract = ["-xf", "-", "-C", root, "--no-same-owner", "--exclude=dev/*"];
      execFileSync("tar", extract, { input: fileOf(file, layer) });
    }
    const programs = readdirSync(root, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map(({ parentPath, name }) => join(parentPath, name))
      .flatMap((path) => machineOf(path) ?? []);
    expect(programs.length).toBeGreaterThan(100);
    expect(programs.filter((each) => each !== machine)).toEqual([]);
    const bill = readFileSync(join(out, `worker-${other}.cdx.json`), "utf8");
    expect(bill).toMatch(new RegExp(`pkg:deb/debian/libc6@[^"]*arch=${other}`));
  });
});

/** What an ELF file runs on; undefined of any other file. */
function machineOf(path: string): number | undefined {
  const file = openSync(path, "r");
  try {
    const head = Buffer.alloc(20);
    readSync(file, head);
    return head.readUInt32BE(0) === ELF ? head.readUInt16LE(18) : undefined;
  } finally {
    closeSync(file);
  }
}
