import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { trainingFaults } from "@heddle/contracts/training-faults";
import { Command } from "commander";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readJobSpec } from "./job-spec.ts";

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-spec-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** The config of a spec file as it is sent to the cluster. */
async function configOf(config: unknown): Promise<unknown> {
  const file = join(folder, "job.yaml");
  writeFileSync(file, JSON.stringify({ name: "j", config }));
  return (await specOf(file)).config;
}

interface TrainingSpec {
  readonly algorithm?: string;
  readonly config?: unknown;
  readonly tasks?: number;
}

async function specOf(file: string): Promise<TrainingSpec> {
  const command = new Command().argument("[file]").parse([file], { from: "user" });
  return (await readJobSpec(command)) as TrainingSpec;
}

test("job spec: paths of data and of a tokenizer are relative to the file", async () => {
  const path = "tokens/tokenizer.json";
  expect(
    await configOf({ data: ["a", "/b"], tokenizer: { type: "huggingface", path }, seed: 1 }),
  ).toEqual({
    data: [join(folder, "a"), "/b"],
    tokenizer: { type: "huggingface", path: join(folder, path) },
    seed: 1,
  });
  expect(await configOf({ data: "a", tokenizer: "bpe" })).toEqual({
    data: join(folder, "a"),
    tokenizer: "bpe",
  });
});

test("job spec: a file of two documents, or of none, is refused", async () => {
  const file = join(folder, "two.yaml");
  const read = (text: string) => {
    writeFileSync(file, text);
    return readJobSpec(new Command().argument("[file]").parse([file], { from: "user" }));
  };
  await expect(read("name: a\n---\nname: b\n")).rejects.toThrow(
    /holds 2 documents \(parted by `---`/,
  );
  await expect(read("")).rejects.toThrow(/two\.yaml: .*expected the fields of one job/);
  expect(await read("---\nname: a\n")).toEqual({ name: "a" });
});

test("job spec: a file named .json is read as JSON, which is stricter than YAML", async () => {
  const file = join(folder, "spec.json");
  const read = (text: string) => {
    writeFileSync(file, text);
    return readJobSpec(new Command().argument("[file]").parse([file], { from: "user" }));
  };
  expect(await read('{"name": "a"}')).toEqual({ name: "a" });
  await expect(read('{"name": "a",}')).rejects.toThrow(/spec\.json: it is not JSON: .*yaml/);
  await expect(read("name: a")).rejects.toThrow(/it is not JSON/);
});

test.each([
  [["--command", "sleep 60"], { generate_name: "sleep-" }],
  [["--command", "  A=1 B=x/y /usr/bin/python3.12 -c 'x'"], { generate_name: "python3.12-" }],
  [["--command", "(date; uptime)"], { generate_name: "date-" }],
  [["--command", "'"], { generate_name: "job-" }],
  [["--command", "x".repeat(500)], { generate_name: `${"x".repeat(40)}-` }],
  [["--image", "registry.example:5000/team/tool:v1.2"], { generate_name: "tool-" }],
  [["--command", "date", "--name", "n"], { name: "n" }],
  [["FILE"], { generate_name: "from-file-" }],
  [["FILE", "--name", "n"], { name: "n" }],
])("job spec: the name of %j", async (flags, expected) => {
  const file = join(folder, "named.yaml");
  writeFileSync(file, "generate_name: from-file-\ncommand: date\n");
  const command = new Command().argument("[file]");
  for (const flag of ["--name <n>", "--command <c>", "--image <i>"]) command.option(flag);
  command.parse(
    flags.map((flag) => (flag === "FILE" ? file : flag)),
    { from: "user" },
  );
  const { name, generate_name } = (await readJobSpec(command)) as Record<string, unknown>;
  expect({ name, generate_name }).toEqual(expected);
});

test("job spec: a directory instead of a file is refused, with the remedy", async () => {
  const command = new Command().argument("[file]").parse([folder], { from: "user" });
  await expect(readJobSpec(command)).rejects.toThrow(
    `the spec ${folder} is a directory. Give a YAML or JSON file`,
  );
});

test("job spec: a config without paths is sent unchanged", async () => {
  for (const config of [{ seed: 1 }, null, "text", { tokenizer: { path: 3 } }, { data: 3 }]) {
    expect(await configOf(config)).toEqual(config);
  }
});

test("job spec: the training jobs among the examples are accepted", async () => {
  const examples = fileURLToPath(new URL("../../../../../examples/", import.meta.url));
  const trained: string[] = [];
  for (const file of readdirSync(examples).filter((name) => name.endsWith(".yaml"))) {
    const spec = await specOf(join(examples, file));
    if (spec.algorithm === undefined) continue;
    expect([file, trainingFaults(spec.algorithm, spec.config, spec.tasks)]).toEqual([file, []]);
    trained.push(file);
  }
  expect(trained).toContain("mountain-car.yaml");
});
