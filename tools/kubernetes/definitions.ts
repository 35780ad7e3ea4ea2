/** `npm run crds` writes the chart's CustomResourceDefinitions. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  definitionOf,
  INFERENCE_MODEL,
  TRAINING_JOB,
} from "@heddle/contracts/kubernetes/custom-resources";
import { stringify } from "yaml";
import { CHART } from "./kube-tools.ts";

for (const resource of [TRAINING_JOB, INFERENCE_MODEL]) {
  const text = stringify(definitionOf(resource), { aliasDuplicateObjects: false, lineWidth: 0 });
  writeFileSync(join(CHART, "files", "crds", `${resource.plural}.yaml`), text);
}
