// Loaded first by test programs, as `node --import`: what they import of the workspace's packages is then
// that of `packaged/`, which starts faster; what is not there, as helpers of tests, stays what it is.
import { existsSync } from "node:fs";
import { registerHooks } from "node:module";

const ROOT = new URL("../", import.meta.url).href;
const PACKAGED = `${ROOT}packaged/`;

registerHooks({
  resolve(specifier, context, next) {
    const module = moduleOf(specifier, context.parentURL);
    const url = module && new URL(`${module}.js`, PACKAGED);
    if (!url || !existsSync(url)) return next(specifier, context);
    return { url: url.href, format: "module", shortCircuit: true };
  },
});

/** Where a module of the workspace is below `packaged/`, without its extension. */
function moduleOf(specifier, parent) {
  const library = /^@heddle\/([a-z-]+)\/(.+)$/.exec(specifier);
  if (library) return `libs/${library[1]}/dist/${library[2]}`;
  if (!specifier.startsWith(".") || !parent?.startsWith(ROOT)) return undefined;
  const path = new URL(specifier, parent).href.slice(ROOT.length);
  const own = /^((?:apps|libs)\/[^/]+)\/(?:src|dist)\/(.+)\.[jt]s$/.exec(path);
  return own ? `${own[1]}/dist/${own[2]}` : undefined;
}
