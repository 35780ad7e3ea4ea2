// A training algorithm: evolution strategies (Salimans et al., 2017). Each worker plays episodes
// with its parameters moved a little in random directions, and their opposites. The returns of
// these give an estimate of the gradient, which goes to the parameter servers. They average the
// workers' estimates and take a step of Adam; no gradient is ever computed.

import { definePlugin } from "heddle/plugin-kit";

/** What a job may write under `config`, beside what all jobs have. */
const config = {
  type: "object",
  properties: {
    environment: { type: "string", default: "CartPole-v1" },
    generations: { type: "integer", minimum: 1, maximum: 1_000_000, default: 100 },
    /** Pairs of opposite directions that each worker tries in a generation. */
    directions: { type: "integer", minimum: 1, maximum: 10_000, default: 16 },
    /** How far the parameters are moved. */
    deviation: { type: "number", exclusiveMinimum: 0, maximum: 10, default: 0.1 },
    learning_rate: { type: "number", exclusiveMinimum: 0, maximum: 10, default: 0.05 },
    hidden: { type: "integer", minimum: 1, maximum: 4096, default: 16 },
    /** Ends the job as succeeded once a generation's mean return reaches it. */
    target_return: { type: "number" },
  },
};

export default definePlugin({
  name: "evolution-strategies",
  version: "1.0.0",
  apiVersion: 1,
  capabilities: ["algorithms"],
  setup({ algorithms, toolkit }) {
    algorithms.add("evolution-strategies", {
      config,
      plan: (settings, context) => evolution(settings, context, toolkit),
    });
  },
});

/**
 * @param {any} settings
 * @param {import("@heddle/training/plugins/plugin").PlanContext} context
 * @param {import("@heddle/training/plugins/toolkit").PluginToolkit} toolkit
 * @returns {import("@heddle/training/plugins/plugin").PluginPlan}
 */
function evolution(settings, context, toolkit) {
  const { generations, directions, learning_rate: learningRate } = settings;
  const sample = context.environment(settings.environment);
  if (sample.continuous) throw new Error(`${sample.name} wants numbers; this plays choices only`);
  const policy = toolkit.policyFor(sample, settings.hidden);
  const all = toolkit.actorCriticParameters(policy);
  return {
    // The critic has no part in this.
    parameters: all.filter(({ name }) => name.startsWith("actor.")),
    servers: { optimizer: toolkit.ADAM, learningRate: 1 },
    rounds: generations,
    stepAfter: (round) => round,
    pushesPerRound: 1,
    artifacts: (parameters) => {
      const blank = all.map(({ name, shape }) => [name, zeros(shape)]);
      const whole = { ...Object.fromEntries(blank), ...parameters };
      return { "policy.onnx": toolkit.emitModel(toolkit.policyModel(policy, whole, 1)) };
    },
    run: async ({ client, parameters, done, signal, report }) => {
      const play = await player(settings, context, toolkit, policy, all);
      await client.pull(parameters);
      for (let round = done + 1; round <= generations; round++) {
        signal.throwIfAborted();
        const random = context.draws(context.rank, round);
        const tried = [];
        for (let i = 0; i < directions; i++) {
          const direction = noise(parameters, random);
          const ahead = await play(moved(parameters, direction, settings.deviation), random);
          const back = await play(moved(parameters, direction, -settings.deviation), random);
          tried.push({ direction, ahead, back });
        }
        const returns = tried.flatMap(({ ahead, back }) => [ahead, back]);
        const reward = returns.reduce((sum, one) => sum + one, 0) / returns.length;
        await client.push(slope(parameters, tried, settings.deviation), {
          weight: directions,
          learningRate,
        });
        await client.pull(parameters);
        const reached = settings.target_return !== undefined && reward >= settings.target_return;
        const metrics = { best_return: Math.max(...returns) };
        const reported = { round, step: round, loss: -reward, reward, reached, metrics, state: {} };
        if ((await report(reported)) === "stop") break;
      }
      await play.close();
    },
  };
}

/** Plays one episode with given parameters, always taking the likeliest choice; gives its return. */
async function player(settings, context, toolkit, policy, all) {
  const forward = await context.backend.compile(toolkit.policyForward(policy, 1));
  const critic = Object.fromEntries(all.map(({ name, shape }) => [name, zeros(shape)]));
  const world = context.environment(settings.environment);
  const observation = new Float32Array(world.observations);
  const play = async (parameters, random) => {
    let total = 0;
    world.reset(random, observation);
    for (let step = 0; step < world.maxSteps; step++) {
      const { head } = await forward.run({ ...critic, ...parameters, observation });
      const { reward, terminated } = world.step(head.indexOf(Math.max(...head)), observation);
      total += reward;
      if (terminated) break;
    }
    return total;
  };
  return Object.assign(play, { close: () => forward.close() });
}

const zeros = (shape) => new Float32Array(shape.reduce((product, size) => product * size, 1));

function each(parameters, make) {
  return Object.fromEntries(
    Object.entries(parameters).map(([name, data]) => [name, data.map((v, i) => make(name, v, i))]),
  );
}

/** Normal draws (Box and Muller), shaped as the parameters. */
function noise(parameters, random) {
  const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  return each(parameters, normal);
}

const moved = (parameters, direction, far) =>
  each(parameters, (name, value, i) => value + far * direction[name][i]);

/** The estimate of the gradient of minus the return, by the ranks of the returns. */
function slope(parameters, tried, deviation) {
  const returns = tried.flatMap(({ ahead, back }) => [ahead, back]).sort((a, b) => a - b);
  // Equal returns have one rank, so that a flat world moves nothing.
  const rank = (one) => (returns.indexOf(one) + returns.lastIndexOf(one)) / 2 / returns.length;
  const scale = -1 / (tried.length * deviation);
  return each(parameters, (name, _value, i) =>
    tried.reduce(
      (sum, { direction, ahead, back }) =>
        sum + scale * (rank(ahead) - rank(back)) * direction[name][i],
      0,
    ),
  );
}
