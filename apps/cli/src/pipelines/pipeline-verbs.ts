import type { Command } from "commander";
import type { Lazy } from "../cluster-verbs.ts";

/** Adds `heddle pipelines ...`. */
export function addPipelines(program: Command, lazy: Lazy): void {
  const load = () => import("./pipelines.ts");
  const pipelines = program.command("pipelines").description("run steps that depend on each other");
  pipelines
    .command("submit")
    .description("submit a pipeline and print its id")
    .argument("<file>", "YAML or JSON file; `-` reads standard input")
    .option("--wait", "wait for its end; exits with 8 unless it succeeds")
    .option("--no-reuse", "run steps again that have succeeded with the same inputs")
    .option("--idempotency-key <key>", "a repetition with the same key is the same pipeline")
    .action(lazy(async () => (await load()).submitPipeline));
  pipelines
    .command("get")
    .description("show a pipeline with the state of each step")
    .argument("<id>", "pipeline id")
    .action(lazy(async () => (await load()).getPipeline));
  pipelines
    .command("graph")
    .description("show the steps of a pipeline, or of a file that is checked and not submitted")
    .argument("<pipeline>", "pipeline id, or a YAML or JSON file")
    .option("--dot", "print the graph for Graphviz")
    .action(lazy(async () => (await load()).graphPipeline));
  pipelines
    .command("list")
    .description("list pipelines, newest first")
    .option("--name <name>", "only those of this name")
    .option("--project <name>", "only those of this project")
    .option("--limit <n>", "maximum number of pipelines", "100")
    .action(lazy(async () => (await load()).listPipelines));
  pipelines
    .command("cancel")
    .description("cancel a pipeline and the jobs of its steps")
    .argument("<id>", "pipeline id")
    .action(lazy(async () => (await load()).cancelPipeline));
  pipelines
    .command("blocks")
    .description("list what steps can run, with inputs and outputs")
    .action(lazy(async () => (await load()).listBlocks));
}
