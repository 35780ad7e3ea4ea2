/** `node tools/release/image-bill.ts --root DIR --image NAME --arch ARCH`: what an image consists of, by CycloneDX. */
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const HOME = "opt/heddle";
const NODE = "usr/local/bin/node";
/** One package of a bundle: `NAME VERSION (LICENSE)`, before the license's text. */
const BUNDLED = /^((?:@[\w.~-]+\/)?[\w.~-]+) (\d+\.\d+\.\d+\S*) \(([^)]*)\)\n\n/gm;
/** Node's program has the address of its source in it. */
const NODE_VERSION = /\/node-v(\d+\.\d+\.\d+)\.tar\.gz/;

interface Component {
  readonly type: "library" | "application";
  readonly name: string;
  readonly version: string;
  readonly purl: string;
  readonly licenses?: readonly object[];
  readonly hashes?: readonly object[];
}

interface ImageName {
  readonly image: string;
  readonly arch: string;
}

/** The bill of materials of an image with this root; the same for the same files. */
export function imageBill(root: string, { image, arch }: ImageName): object {
  const found = [
    ...debianPackages(root),
    ...modules(join(root, HOME, "node_modules")),
    ...bundledModules(join(root, HOME, "packaged/LICENSES.txt")),
    ...program(join(root, NODE)),
  ];
  const components = [...new Map(found.map((each) => [each.purl, each])).values()].sort(byPurl);
  return {
    bomFormat: "CycloneDX",
    specVersion: "1.5",
    version: 1,
    metadata: {
      component: {
        type: "container",
        "bom-ref": image,
        name: image,
        properties: [{ name: "heddle:architecture", value: arch }],
      },
    },
    components: components.map((each) => ({ "bom-ref": each.purl, ...each })),
  };
}

function byPurl(left: Component, right: Component): number {
  return left.purl < right.purl ? -1 : 1;
}

/** The installed packages, by dpkg's status. */
function debianPackages(root: string): Component[] {
  const distribution = /^ID="?([\w-]+)/m.exec(read(join(root, "etc/os-release")))?.[1] ?? "debian";
  return read(join(root, "var/lib/dpkg/status"))
    .split("\n\n")
    .flatMap((record) => {
      const field = (name: string) => new RegExp(`^${name}: (.*)$`, "m").exec(record)?.[1];
      const [name, version, arch] = [field("Package"), field("Version"), field("Architecture")];
      if (!name || !version || !field("Status")?.endsWith(" installed")) return [];
      const place = `pkg:deb/${distribution}/${encodeURIComponent(name)}`;
      const purl = `${place}@${encodeURIComponent(version)}?arch=${arch}`;
      return [{ type: "library", name, version, purl } as const];
    });
}

/** The packages of a folder node_modules, and of those in them. */
function modules(folder: string): Component[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (!entry.isDirectory() || entry.name.startsWith(".")) return [];
    if (entry.name.startsWith("@")) return modules(path);
    const text = read(join(path, "package.json"));
    const nested = modules(join(path, "node_modules"));
    if (text === "") return nested;
    const { name, version, license } = JSON.parse(text) as Record<string, string>;
    return name && version ? [module(name, version, license), ...nested] : nested;
  });
}

function bundledModules(licenses: string): Component[] {
  return [...read(licenses).matchAll(BUNDLED)].map(([, name = "", version = "", license]) =>
    module(name, version, license),
  );
}

function module(name: string, version: string, license: string | undefined): Component {
  const purl = `pkg:npm/${name.replace("@", "%40")}@${version}`;
  const licenses = license ? { licenses: [{ license: { name: license } }] } : {};
  return { type: "library", name, version, purl, ...licenses };
}

function program(file: string): Component[] {
  if (!existsSync(file)) return [];
  const bytes = readFileSync(file);
  const version = NODE_VERSION.exec(bytes.toString("latin1"))?.[1] ?? "unknown";
  const content = createHash("sha256").update(bytes).digest("hex");
  const purl = `pkg:generic/node@${version}?checksum=sha256:${content}`;
  const hashes = [{ alg: "SHA-256", content }];
  return [{ type: "application", name: "node", version, purl, hashes }];
}

function read(path: string): string {
  return existsSync(path) ? readFileSync(path, "utf8") : "";
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const type = "string" as const;
  const { values } = parseArgs({ options: { root: { type }, image: { type }, arch: { type } } });
  const { root = "", image = "", arch = "" } = values;
  const bill = imageBill(root, { image, arch }) as { readonly components: readonly object[] };
  if (bill.components.length === 0) {
    console.error(`--root ${root} has no packages: give the root of an image of build.sh`);
    process.exit(1);
  }
  process.stdout.write(`${JSON.stringify(bill, undefined, 2)}\n`);
}
