/**
 * `npm run release -- [--out DIR] [--trial] [--sign-key FILE]`: makes all files of a release,
 * without a network. They are the package, the client, the images' context, the chart, the bill of
 * materials, the provenance, and checksums.
 */
import { execFileSync } from "node:child_process";
import { createHash, createPrivateKey, type KeyObject, sign } from "node:crypto";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { releaseFaults } from "./release-faults.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const MAX_OUTPUT = 2 ** 28;
const SUMS = "SHA256SUMS";
/** What the context of the images has beside the package; the compose file mounts alerts and dashboards. */
const CONTEXT = ["deploy", "docker-compose.yml", "helm/heddle/files", "LICENSE"];

interface Flags {
  readonly out: string;
  readonly isTrial: boolean;
  readonly signKey: KeyObject | undefined;
}

try {
  main();
} catch (error) {
  console.error(`no release was made: ${(error as Error).message}`);
  process.exit(1);
}

function main(): void {
  const version = (JSON.parse(read("package.json")) as { version: string }).version;
  const { out, isTrial, signKey } = readFlags(version);
  const faults = releaseFaults(
    {
      version,
      chart: read("helm/heddle/Chart.yaml"),
      dockerfile: read("deploy/images/Dockerfile"),
      changelog: read("CHANGELOG.md"),
      changes: run("git", ["status", "--porcelain"]),
    },
    isTrial,
  );
  if (faults.length > 0) throw new Error(faults.join("; "));
  mkdirSync(out, { recursive: true });
  if (readdirSync(out).length > 0) throw new Error(`${out} is not empty: give another --out`);
  const work = mkdtempSync(join(tmpdir(), "heddle-release-"));
  try {
    run("npm", ["pack", "--silent", "--pack-destination", out]);
    run("node", ["tools/packages/pack-client.ts", "--out", out]);
    packChart(join(work, "chart"), join(out, "chart", `heddle-${version}.tgz`));
    packContext(join(work, "images"), out, version);
  } finally {
    rmSync(work, { recursive: true });
  }
  writeFileSync(join(out, "sbom.cdx.json"), billOfMaterials());
  writeFileSync(join(out, "provenance.json"), provenance(out, version));
  const sums = digests(out).map(([name, digest]) => `${digest}  ${name}\n`);
  writeFileSync(join(out, SUMS), sums.join(""));
  if (signKey)
    writeFileSync(join(out, `${SUMS}.sig`), sign(null, Buffer.from(sums.join("")), signKey));
  process.stdout.write(`${out}\n${sums.join("")}`);
}

function readFlags(version: string): Flags {
  const options = {
    out: { type: "string", default: join(ROOT, "dist", `release-${version}`) },
    trial: { type: "boolean", default: false },
    "sign-key": { type: "string" },
  } as const;
  const { values } = parseArgs({ options, strict: true });
  const file = values["sign-key"];
  return {
    out: resolve(values.out),
    isTrial: values.trial,
    signKey: file === undefined ? undefined : readSignKey(file),
  };
}

function readSignKey(file: string): KeyObject {
  const advice = "make one: openssl genpkey -algorithm ed25519 -out FILE";
  let key: KeyObject;
  try {
    key = createPrivateKey(readFileSync(file));
  } catch (error) {
    throw new Error(
      `--sign-key ${file} is no private key (${(error as Error).message}); ${advice}`,
    );
  }
  if (key.asymmetricKeyType === "ed25519") return key;
  throw new Error(
    `--sign-key ${file} is a key of ${key.asymmetricKeyType}, not of ed25519; ${advice}`,
  );
}

/** Helm's form of a package: the chart's folder in a tar; its tests' values are left out. */
function packChart(work: string, file: string): void {
  copyTracked("helm/heddle", join(work, "heddle"));
  rmSync(join(work, "heddle", "ci"), { recursive: true, force: true });
  pack(work, "heddle", file);
}

/** A folder in which `docker build -f deploy/images/Dockerfile .` has all that it copies. */
function packContext(work: string, out: string, version: string): void {
  const name = `heddle-images-${version}`;
  for (const path of CONTEXT) copyTracked(path, join(work, name, path));
  cpSync(join(out, `heddle-${version}.tgz`), join(work, name, `heddle-${version}.tgz`));
  pack(work, name, join(out, `${name}.tgz`));
}

/** Only what git knows, so that a stray file is in no release. */
function copyTracked(path: string, target: string): void {
  for (const file of run("git", ["ls-files", "--", path]).split("\n").filter(Boolean)) {
    const to = file === path ? target : join(target, file.slice(path.length + 1));
    mkdirSync(dirname(to), { recursive: true });
    cpSync(join(ROOT, file), to);
  }
}

/** The same bytes for the same files, at any time and by any user. */
function pack(folder: string, name: string, file: string): void {
  mkdirSync(dirname(file), { recursive: true });
  const owner = ["--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"];
  const form = ["--sort=name", "--mtime=@499162500", "--format=ustar", ...owner];
  const tar = execFileSync("tar", [...form, "-C", folder, "-cf", "-", name], {
    maxBuffer: MAX_OUTPUT,
  });
  writeFileSync(file, execFileSync("gzip", ["-9n"], { input: tar, maxBuffer: MAX_OUTPUT }));
}

/** CycloneDX, by npm, from the lockfile alone; without the fields that differ in each run. */
function billOfMaterials(): string {
  const form = ["--sbom-format", "cyclonedx", "--omit", "dev", "--package-lock-only"];
  const bill = JSON.parse(run("npm", ["sbom", ...form])) as {
    serialNumber?: string;
    metadata: { timestamp?: string; component: { name: string } };
  };
  delete bill.serialNumber;
  delete bill.metadata.timestamp;
  // npm names it after the folder.
  bill.metadata.component.name = "heddle";
  return `${JSON.stringify(bill, undefined, 2)}\n`;
}

/** SLSA's statement of what was built from what; checksums and their signature cover it. */
function provenance(out: string, version: string): string {
  const commit = run("git", ["rev-parse", "HEAD"]).trim();
  const subject = digests(out).map(([name, sha256]) => ({ name, digest: { sha256 } }));
  const source = { uri: "git+heddle", digest: { gitCommit: commit } };
  const statement = {
    _type: "https://in-toto.io/Statement/v1",
    subject,
    predicateType: "https://slsa.dev/provenance/v1",
    predicate: {
      buildDefinition: {
        buildType: "npm run release",
        externalParameters: { version },
        resolvedDependencies: [source],
      },
      runDetails: { builder: { id: `node ${process.version}` } },
    },
  };
  return `${JSON.stringify(statement, undefined, 2)}\n`;
}

/** SHA-256 of each file, by its path. */
function digests(out: string): (readonly [name: string, digest: string])[] {
  const names = readdirSync(out, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(out.length + 1))
    .sort();
  return names.map((name) => {
    const hash = createHash("sha256").update(readFileSync(join(out, name)));
    return [name, hash.digest("hex")] as const;
  });
}

function read(path: string): string {
  const file = join(ROOT, path);
  if (!existsSync(file)) throw new Error(`${path} is missing`);
  return readFileSync(file, "utf8");
}

function run(program: string, args: readonly string[]): string {
  try {
    const options = { cwd: ROOT, encoding: "utf8", stdio: "pipe", maxBuffer: MAX_OUTPUT } as const;
    return execFileSync(program, args, options);
  } catch (error) {
    const { stderr, message } = error as { stderr?: string; message: string };
    throw new Error(`${program} ${args[0]} failed: ${stderr || message}`);
  }
}
