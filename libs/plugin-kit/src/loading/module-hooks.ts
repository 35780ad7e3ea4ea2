import { registerHooks } from "node:module";
import { extname } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { fileDigest, type PluginSource } from "./plugin-source.ts";

/** What plugins write to import the kit, wherever they lie. */
const KIT_NAMES: ReadonlySet<string> = new Set(["heddle/plugin-kit", "@heddle/plugin-kit"]);
const KIT = new URL(`../plugin-kit${extname(import.meta.url)}`, import.meta.url).href;

/** Plugins whose code must have the digests that were checked. */
const checked = new Set<PluginSource>();
let isInstalled = false;

/** Lets plugins import the kit of this process, without having it installed. */
export function provideKit(): void {
  if (isInstalled) return;
  isInstalled = true;
  registerHooks({
    resolve(specifier, context, next) {
      if (KIT_NAMES.has(specifier)) return { url: KIT, shortCircuit: true };
      const found = next(specifier, context);
      refuseOutside(found.url, context.parentURL);
      return found;
    },
    load(url, context, next) {
      const loaded = next(url, context);
      if (checked.size > 0) refuseChanged(url, loaded.source);
      return loaded;
    },
  });
}

/** From now on its modules import only files of its digest, as they were. */
export function holdToDigest(source: PluginSource): void {
  checked.add(source);
}

function refuseOutside(url: string, parent: string | undefined): void {
  if (checked.size === 0 || parent === undefined || !url.startsWith("file:")) return;
  const [from, path] = [pathOf(parent), fileURLToPath(url)];
  for (const { files, root } of checked) {
    if (!files.has(from) || files.has(path)) continue;
    throw new Error(
      `${from} imports ${path}, which is no part of ${root} and so not of its digest: bundle the plugin into one file, or give its folder`,
    );
  }
}

function refuseChanged(url: string, source: unknown): void {
  if (!url.startsWith("file:")) return;
  const path = fileURLToPath(url);
  for (const { files } of checked) {
    const known = files.get(path);
    // Text that the loader has made of TypeScript is not what is on the disk.
    if (known === undefined || !isRaw(path, source)) continue;
    if (fileDigest(source) !== known)
      throw new Error(`${path} has changed since its digest was checked`);
  }
}

function isRaw(path: string, source: unknown): source is Uint8Array | string {
  const isBytes = typeof source === "string" || source instanceof Uint8Array;
  return isBytes && !/\.[cm]?ts$/.test(path);
}

function pathOf(url: string): string {
  return url.startsWith("file:") ? fileURLToPath(url) : url;
}

/** The address by which a file is imported. */
export function moduleUrl(file: string): string {
  return pathToFileURL(file).href;
}
