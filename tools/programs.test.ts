import { globSync, readFileSync } from "node:fs";
import { isBuiltin } from "node:module";
import { join } from "node:path";
import { parseSync } from "oxc-parser";
import { expect, test } from "vitest";
import { EXTERNAL } from "./bundle.mjs";

const PACKAGED = join(import.meta.dirname, "../packaged");

test("the programs: import files of their own, or packages with native parts", () => {
  const files = globSync("**/*.js", { cwd: PACKAGED });
  const named = files.flatMap((file) => {
    const { module } = parseSync(file, readFileSync(join(PACKAGED, file), "utf8"));
    return module.staticImports.map(({ moduleRequest: { value } }) => value);
  });
  // Its import would load more of Node than its use needs.
  expect(named.filter((name) => /^(node:)?http$/.test(name))).toEqual([]);
  const packages = named.filter((name) => !name.startsWith(".") && !isBuiltin(name));
  expect(packages.filter((name) => !EXTERNAL.some((each) => name.startsWith(each)))).toEqual([]);
  expect(named.some((name) => name.startsWith("../../../chunks/"))).toBe(true);
});

test("the programs: every process and thread that the code starts is there", () => {
  const sources = globSync("{apps,libs}/*/src/**/*-{main,process,thread}.ts", {
    cwd: join(PACKAGED, ".."),
  });
  const started = sources
    .filter((path) => /(-main|-thread|engine-process)\.ts$/.test(path))
    .map((path) => path.replace("/src/", "/dist/").replace(/\.ts$/, ".js"));
  expect(started).toContain("libs/consensus/dist/thread/raft-thread.js");
  expect(globSync("{apps,libs}/**/*.js", { cwd: PACKAGED })).toEqual(
    expect.arrayContaining(started),
  );
});

test("the programs: modules find what lies beside them as if they were not bundled", () => {
  const texts = globSync("**/*.js", { cwd: PACKAGED }).flatMap((file) =>
    [
      ...readFileSync(join(PACKAGED, file), "utf8").matchAll(
        /new URL\("([^"]+)", import\.meta\.url\)/g,
      ),
    ].map(([, path = ""]) => join(file, "..", path)),
  );
  expect(texts).toContain("libs/consensus/dist/thread/threaded-replica.js");
  expect(texts.filter((path) => !/^(apps|libs)\//.test(path))).toEqual([]);
});

test("the programs: carry the licenses of what is bundled", () => {
  const text = readFileSync(join(PACKAGED, "LICENSES.txt"), "utf8");
  expect(text).toMatch(/^@nestjs\/core \S+ \(MIT\)$/m);
  expect(text).toMatch(/^@grpc\/grpc-js \S+ \(Apache-2\.0\)$/m);
});
