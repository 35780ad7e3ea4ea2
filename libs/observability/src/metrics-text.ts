import { type InSteps, SharedRun } from "@heddle/base/async/shared-run";
import type { StepQueue } from "@heddle/base/async/step-queue";
import { forEachInSteps, type Steps } from "@heddle/base/async/steps";
import { TextPieces } from "@heddle/base/text-pieces";
import type { Registry } from "prom-client";
import type { Sample } from "./read-metric.ts";

/** prom-client's histograms give the labels that all lines of a series have once. */
type RegistrySample = Sample & { readonly sharedLabels?: Sample["labels"] };

/** What a metric of the registry answers when it is read. */
interface ReadValues {
  readonly name: string;
  readonly help: string;
  readonly type: string;
  readonly values?: Iterable<RegistrySample>;
}

/** A metric as the registry reads it: `getForPromString` where it has one. */
interface Readable {
  get(): Promise<ReadValues>;
  getForPromString?(): Promise<ReadValues>;
}

/** Whether a series is left out, by its labels. */
export type Hides = (labels: Sample["labels"]) => boolean;

/**
 * The registry's metrics in Prometheus' text format, the same as `Registry.metrics`, which would
 * write all lines in one turn of the event loop. `hidesNow` gives what a text leaves out.
 */
export class MetricsText {
  readonly contentType: string;
  readonly #shared: SharedRun<readonly Buffer[]>;

  constructor(registry: Registry, queue: StepQueue, hidesNow: () => Hides = () => () => false) {
    this.contentType = registry.contentType;
    this.#shared = new SharedRun(queue, (inSteps) => writeAll(registry, inSteps, hidesNow()));
  }

  pieces(): Promise<readonly Buffer[]> {
    return this.#shared.get();
  }
}

async function writeAll(
  registry: Registry,
  inSteps: InSteps,
  hides: Hides,
): Promise<readonly Buffer[]> {
  const metrics = registry.getMetricsAsArray() as unknown as readonly Readable[];
  // All are read in the same turn, so that gauges of one source share its computation.
  const read = await Promise.all(
    metrics.map((metric) => metric.getForPromString?.() ?? metric.get()),
  );
  return inSteps(() => textOf(read, defaultLabelsOf(registry), hides));
}

/** The registry has no getter of the labels that each line has. */
function defaultLabelsOf(registry: Registry): Sample["labels"] {
  return (registry as unknown as { readonly _defaultLabels: Sample["labels"] })._defaultLabels;
}

function* textOf(
  metrics: readonly ReadValues[],
  defaults: Sample["labels"],
  hides: Hides,
): Steps<readonly Buffer[]> {
  const text = new TextPieces();
  let separator = "";
  for (const { name, help, type, values = [] } of metrics) {
    text.add(`${separator}# HELP ${name} ${escaped(help)}\n# TYPE ${name} ${type}`);
    separator = "\n\n";
    yield* forEachInSteps(values, (sample) => {
      const { metricName = name, value, labels, sharedLabels } = sample;
      if (hides(labels) || (sharedLabels && hides(sharedLabels))) return;
      text.add(`\n${metricName}${labelsText(sample, defaults)} ${valueText(value)}`);
    });
  }
  text.add("\n");
  return text.end();
}

function labelsText(
  { labels, sharedLabels = {} }: RegistrySample,
  defaults: Sample["labels"],
): string {
  const own = Object.entries({ ...labels, ...defaults, ...labels });
  const all = [
    ...own.filter(([name]) => !Object.hasOwn(sharedLabels, name)),
    ...Object.entries(sharedLabels),
  ];
  const parts = all.map(([name, value]) => {
    return `${name}="${typeof value === "string" ? escaped(value).replaceAll('"', '\\"') : value}"`;
  });
  return parts.length === 0 ? "" : `{${parts.join(",")}}`;
}

function escaped(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll("\n", "\\n");
}

function valueText(value: number): string {
  if (Number.isNaN(value)) return "Nan";
  if (Number.isFinite(value)) return `${value}`;
  return value < 0 ? "-Inf" : "+Inf";
}
