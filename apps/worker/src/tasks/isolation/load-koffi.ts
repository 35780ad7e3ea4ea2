import { createRequire } from "node:module";
import type koffiPackage from "koffi";

/**
 * The native part of koffi. What its package does beside loading it takes ten milliseconds of CPU at
 * each start of a task.
 */
export const koffi: typeof koffiPackage = load(createRequire(import.meta.url));

function load(require: NodeJS.Require): typeof koffiPackage {
  try {
    return require(`@koromix/koffi-${process.platform}-${process.arch}`);
  } catch {
    // It was compiled here, or is installed elsewhere.
    return require("koffi");
  }
}
