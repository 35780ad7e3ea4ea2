import { wholeModelExchange } from "./fragment-exchange.ts";
import { ModelAverage } from "./model-average.ts";
import type { WeaveWorkerOptions } from "./weave-options.ts";
import { WeaveReplica } from "./weave-replica.ts";
import { fragmentSchedule, weaveSchedule } from "./weave-schedule.ts";

/**
 * One worker of a weave job: H local steps, then their displacement goes to the servers, fragment
 * by fragment. Rejects with an AppError `invalid_value` that names the step of the first loss that
 * is not finite.
 */
export async function runWeaveWorker(options: WeaveWorkerOptions): Promise<void> {
  const { config, client, parameters, signal, done } = options;
  const schedule = weaveSchedule(config);
  const { rounds, stepsOf, stepAfter } = schedule;
  const { fragments = 1, overlap_steps = 0, total_steps: total } = config;
  const { eventsOf } = fragmentSchedule(schedule, { fragments, overlap_steps });
  const exchange = options.exchange ?? wholeModelExchange(client, parameters);
  await exchange.pullAll();
  const replica = new WeaveReplica(options, exchange);
  replica.resume(done);
  const average = averageOf(options, replica);
  for (let round = done + 1; round <= rounds; round++) {
    for (const { step, begin, merge } of eventsOf(round)) {
      signal.throwIfAborted();
      await replica.trainTo(step);
      const terms = { weight: options.batch * stepsOf(round), learningRate: 1 };
      for (const fragment of begin) replica.begin(fragment, round, terms);
      for (const fragment of merge) {
        await exchange.finish(fragment);
        average?.add(fragment, exchange.shared, step);
        replica.merge(fragment, step === total ? 0 : replica.mixing);
      }
    }
    const progress = replica.report(round);
    const state = { ...progress.state, ...average?.state };
    await options.report({ round, rounds, step: stepAfter(round), ...progress, state });
  }
  average?.copyTo(parameters);
  await replica.close();
}

function averageOf(
  { config, parameters, state }: WeaveWorkerOptions,
  { ranges }: WeaveReplica,
): ModelAverage | undefined {
  const { average_steps: steps = 0 } = config;
  return steps > 0 ? new ModelAverage(parameters, ranges, steps, state) : undefined;
}
