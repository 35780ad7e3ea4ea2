/** `npm run crds` writes the chart's CustomResourceDefinitions. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { INFERENCE_MODEL, TRAINING_JOB } from "@heddle/contracts/kubernetes/custom-resources";
import { definitionOf } from "@heddle/contracts/kubernetes/resource-kind";
import { SETTINGS_KINDS } from "@heddle/contracts/kubernetes/settings-resources";
import { stringify } from "yaml";
import { CHART } from "./kube-tools.ts";

/** The definitions' text by the path of their file. */
export function definitionTexts(): ReadonlyMap<string, string> {
  return new Map(
    [TRAINING_JOB, INFERENCE_MODEL, ...SETTINGS_KINDS].map((resource) => [
      join(CHART, "files", "crds", `${resource.plural}.yaml`),
      stringify(definitionOf(resource), { aliasDuplicateObjects: false, lineWidth: 0 }),
    ]),
  );
}

if (process.argv[1] === import.meta.filename) {
  for (const [path, text] of definitionTexts()) writeFileSync(path, text);
}
