import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { openApiDocument } from "@heddle/contracts/openapi";
import manifest from "../package.json" with { type: "json" };

/** `npm run openapi` writes the document of the HTTP API. */
const path = fileURLToPath(new URL("../libs/contracts/openapi.json", import.meta.url));
writeFileSync(path, `${JSON.stringify(openApiDocument(manifest.version), null, 2)}\n`);
