import { globSync, readFileSync } from "node:fs";
import { isBuiltin } from "node:module";
import { join } from "node:path";
import { parseSync } from "oxc-parser";
import { expect, test } from "vitest";
import { EXTERNAL } from "./vendor.mjs";

const PACKAGED = join(import.meta.dirname, "../packaged");

test("the programs: import files of their own, or packages with native parts", () => {
  const files = globSync("{apps,libs}/**/*.js", { cwd: PACKAGED });
  const named = files.flatMap((file) => {
    const { module } = parseSync(file, readFileSync(join(PACKAGED, file), "utf8"));
    return module.staticImports.map(({ moduleRequest: { value } }) => value);
  });
  const packages = named.filter((name) => !name.startsWith(".") && !isBuiltin(name));
  expect(packages.filter((name) => !EXTERNAL.some((each) => name.startsWith(each)))).toEqual([]);
  expect(named).toContain("../../../vendor/zod.js");
});

test("the programs: carry the licenses of what is bundled", () => {
  const text = readFileSync(join(PACKAGED, "vendor/LICENSES.txt"), "utf8");
  expect(text).toMatch(/^@nestjs\/core \S+ \(MIT\)$/m);
  expect(text).toMatch(/^@grpc\/grpc-js \S+ \(Apache-2\.0\)$/m);
});
