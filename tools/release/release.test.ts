// holds: kube-release

import { execFile, execFileSync, spawnSync } from "node:child_process";
import { generateKeyPairSync, verify } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { CHART, helm, kubeTool } from "../kubernetes/kube-tools.ts";
import { releaseFaults } from "./release-faults.ts";

const HAS_OPENSSL = spawnSync("openssl", ["version"]).status === 0;
const NEEDS_OPENSSL = HAS_OPENSSL ? "" : " (skipped: no openssl)";
const ROOT = join(import.meta.dirname, "..", "..");
const folder = mkdtempSync(join(tmpdir(), "heddle-release-test-"));
const out = join(folder, "out");
const keyFile = join(folder, "key.pem");
const { privateKey, publicKey } = generateKeyPairSync("ed25519");
writeFileSync(keyFile, privateKey.export({ type: "pkcs8", format: "pem" }));
const { version } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as {
  version: string;
};
afterAll(() => rmSync(folder, { recursive: true }));

// No registry: what is made needs none.
const env = { ...process.env, npm_config_offline: "true" };
const release = (...args: readonly string[]) =>
  promisify(execFile)("node", [join(ROOT, "tools/release/release.ts"), ...args], { env });
const text = (name: string) => readFileSync(join(out, name), "utf8");
const filesOf = (name: string) =>
  execFileSync("tar", ["-tzf", join(out, name)], { encoding: "utf8" })
    .trim()
    .split("\n");

describe("a release", () => {
  beforeAll(() => release("--trial", "--out", out, "--sign-key", keyFile));

  it("release: checksums fit every file, and the signature fits them", () => {
    const checked = execFileSync("sha256sum", ["--check", "--strict", "SHA256SUMS"], {
      cwd: out,
      encoding: "utf8",
    });
    const names = checked
      .trim()
      .split("\n")
      .map((line) => line.replace(": OK", ""));
    expect(names).toEqual([
      `chart/heddle-${version}.tgz`,
      `heddle-${version}.tgz`,
      `heddle-client-${version}.tgz`,
      `heddle-images-${version}.tgz`,
      "provenance.json",
      "sbom.cdx.json",
    ]);
    const sums = readFileSync(join(out, "SHA256SUMS"));
    const signature = readFileSync(join(out, "SHA256SUMS.sig"));
    expect(verify(null, sums, publicKey, signature)).toBe(true);
    expect(verify(null, Buffer.concat([sums, sums]), publicKey, signature)).toBe(false);
  });

  it.skipIf(!HAS_OPENSSL)(`release: openssl verifies the sums${NEEDS_OPENSSL}`, () => {
    const publicFile = join(folder, "public.pem");
    writeFileSync(publicFile, publicKey.export({ type: "spki", format: "pem" }));
    const key = ["-verify", "-pubin", "-inkey", publicFile, "-rawin"];
    const files = ["-in", join(out, "SHA256SUMS"), "-sigfile", join(out, "SHA256SUMS.sig")];
    const verified = execFileSync("openssl", ["pkeyutl", ...key, ...files], { encoding: "utf8" });
    expect(verified).toContain("Verified Successfully");
  });

  it("release: the images' context has the package itself, and what the images copy", () => {
    const name = `heddle-images-${version}`;
    const files = filesOf(`${name}.tgz`);
    expect(files).toContain(`${name}/deploy/images/Dockerfile`);
    expect(files).toContain(`${name}/docker-compose.yml`);
    const compose = readFileSync(join(ROOT, "docker-compose.yml"), "utf8");
    const mounted = [...compose.matchAll(/\.(\/[\w./-]+):\//g)].map(([, path]) => `${name}${path}`);
    expect(mounted.length).toBeGreaterThan(2);
    for (const path of mounted) expect(files.some((file) => file.startsWith(path))).toBe(true);
    const target = join(folder, "context");
    mkdirSync(target);
    execFileSync("tar", ["-xzf", join(out, `${name}.tgz`), "-C", target]);
    const packed = readFileSync(join(target, name, `heddle-${version}.tgz`));
    expect(packed.equals(readFileSync(join(out, `heddle-${version}.tgz`)))).toBe(true);
    expect(filesOf(`heddle-${version}.tgz`)).toContain("package/bin/heddle-master.mjs");
  });

  it("release: the bill of materials has what runs, and none of the tests' packages", () => {
    const bill = JSON.parse(text("sbom.cdx.json")) as {
      components: { "bom-ref": string }[];
      metadata: object;
    };
    const names = bill.components.map((each) => each["bom-ref"].replace(/(.)@.*$/, "$1"));
    expect(names).toContain("koffi");
    expect(names).toContain("@nestjs/core");
    expect(names).not.toContain("vitest");
    expect(bill.metadata).toMatchObject({ component: { name: "heddle", version } });
    expect(JSON.parse(text("provenance.json"))).toMatchObject({
      subject: expect.arrayContaining([expect.objectContaining({ name: `heddle-${version}.tgz` })]),
    });
  });

  it.skipIf(!kubeTool("helm"))("release: the packed chart renders as its folder does", () => {
    const packed = join(out, "chart", `heddle-${version}.tgz`);
    expect(helm("template", "a", packed)).toBe(helm("template", "a", CHART));
    expect(helm("show", "chart", packed)).toContain(`version: ${version}`);
  });

  it("release: a second one is the same, and none replaces another's files", async () => {
    const again = join(folder, "again");
    await release("--trial", "--out", again);
    expect(readFileSync(join(again, "SHA256SUMS"), "utf8")).toBe(text("SHA256SUMS"));
    await expect(release("--trial", "--out", out)).rejects.toThrow(/is not empty/);
    const noKey = join(folder, "no-key");
    writeFileSync(noKey, "none");
    await expect(release("--trial", "--sign-key", noKey)).rejects.toThrow(/is no private key/);
  });
});

describe("the faults of a release", () => {
  const input = {
    version: "1.2.0",
    chart: 'version: 1.2.0\nappVersion: "1.2.0"\n',
    dockerfile: "FROM x\nARG VERSION=1.2.0 REVISION=unknown\n",
    changelog: "# Changelog\n\n## 1.2.0, 2030-01-31\n\n## 1.1.0, 2029-01-31\n",
    changes: "",
  };

  it("release: versions that differ, a missing date and a changed tree are refused", () => {
    expect(releaseFaults(input, false)).toEqual([]);
    const found = releaseFaults(
      {
        ...input,
        chart: "version: 1.1.0\nappVersion: 1.2.0\n",
        dockerfile: "ARG VERSION=1.0.0\n",
        changelog: "## 1.2.0, not released\n",
        changes: " M a.ts\n?? b.ts\n",
      },
      false,
    );
    expect(found).toEqual([
      "helm/heddle/Chart.yaml has the version 1.1.0, package.json 1.2.0",
      "deploy/images/Dockerfile has the VERSION 1.0.0, package.json 1.2.0",
      expect.stringContaining('"## 1.2.0, not released": give it the date'),
      "the tree has changes (M a.ts and 1 more): commit them",
    ]);
  });

  it("release: a trial may have changes and no date, but no other version", () => {
    const trial = { ...input, changelog: "## 1.2.0, not released\n", changes: " M a.ts\n" };
    expect(releaseFaults(trial, true)).toEqual([]);
    expect(releaseFaults({ ...trial, version: "1.3.0" }, true)).toHaveLength(4);
  });
});
