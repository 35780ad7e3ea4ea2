import { MAX_SCHEMA_BYTES, MAX_SCHEMAS_BYTES } from "@heddle/contracts/plugin-config";
import type { PluginAlgorithm } from "@heddle/training/plugins/plugin";

/**
 * The schemas of plugin algorithms for masters, as JSON within a size bound; `unchecked` are those
 * beyond it.
 */
export function algorithmSchemas(algorithms: ReadonlyMap<string, PluginAlgorithm>): {
  readonly schemas: Readonly<Record<string, string>>;
  readonly unchecked: readonly string[];
} {
  const schemas: Record<string, string> = {};
  const unchecked: string[] = [];
  let bytes = 0;
  for (const [name, { config }] of algorithms) {
    const text = JSON.stringify(config);
    const size = Buffer.byteLength(text);
    if (size > MAX_SCHEMA_BYTES || bytes + size > MAX_SCHEMAS_BYTES) {
      unchecked.push(name);
      continue;
    }
    schemas[name] = text;
    bytes += size;
  }
  return { schemas, unchecked };
}
