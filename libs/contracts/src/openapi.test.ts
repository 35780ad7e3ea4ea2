// holds: jobs-openapi

import { readFileSync } from "node:fs";
import { Validator } from "@seriousme/openapi-schema-validator";
import { expect, test } from "vitest";
import { openApiDocument } from "./openapi.ts";

const committed = JSON.parse(readFileSync(new URL("../openapi.json", import.meta.url), "utf8")) as {
  readonly info: { readonly version: string };
};

test("openapi: the committed document is current (npm run openapi)", () => {
  expect(openApiDocument(committed.info.version)).toEqual(committed);
});

test("openapi: the document is valid OpenAPI 3.1", async () => {
  const validator = new Validator();
  const { valid, errors } = await validator.validate(structuredClone(committed));
  expect(errors).toBeUndefined();
  expect({ valid, version: validator.version }).toEqual({ valid: true, version: "3.1" });
  const broken = { ...structuredClone(committed), paths: { jobs: {} } };
  expect((await new Validator().validate(broken)).valid).toBe(false);
});

test("openapi: operation ids are unique", () => {
  const { paths } = openApiDocument("0.0.0");
  const ids = Object.values(paths)
    .flatMap((methods) => Object.values(methods))
    .map(({ operationId }) => operationId);
  expect(new Set(ids).size).toBe(ids.length);
});

test("openapi: a map whose entries are counted first is a map in a request too", () => {
  const { JobSpec } = openApiDocument("0.0.0").components.schemas;
  expect(JobSpec).toMatchObject({
    properties: {
      labels: { type: "object", additionalProperties: { type: "string" } },
      environment_variables: { type: "object", additionalProperties: { type: "string" } },
    },
  });
});
