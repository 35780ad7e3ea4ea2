// holds: kube-images

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { installedProgram } from "./kube-tools.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const MAX_CONTROL_BYTES = 250e6;
const why =
  process.env["HEDDLE_IMAGE_BUILDS"] === undefined
    ? "HEDDLE_IMAGE_BUILDS is not set; its value goes to build.sh, as --from-debian"
    : ["buildah", "mmdebstrap"]
        .filter((name) => installedProgram(name) === undefined)
        .map((name) => `${name} is not installed`)[0];
if (why !== undefined) console.log(`tests of images are skipped: ${why}`);

const folder = mkdtempSync(join(tmpdir(), "heddle-images-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** Builds the image of the masters; resolves with the folder that has it. */
function build(name: string): string {
  const out = join(folder, name);
  const flags = (process.env["HEDDLE_IMAGE_BUILDS"] ?? "").split(" ").filter(Boolean);
  const script = join(ROOT, "deploy/images/build.sh");
  const env = { ...process.env, HEDDLE_IMAGES: "heddle-twice" };
  execFileSync(script, [...flags, "--out", out, "control"], { env, stdio: "pipe" });
  return out;
}

const fileOf = (archive: string, path: string) =>
  execFileSync("tar", ["-xOf", archive, path], { maxBuffer: 2 ** 30 });

interface Archive {
  readonly Config: string;
  readonly Layers: readonly string[];
}

function archiveOf(out: string): Archive & { readonly file: string } {
  const file = join(out, "control.tar");
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
});
