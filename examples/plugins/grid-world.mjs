// An environment for training jobs: a walk on a grid to a goal, around a wall.
//
//   S . . .      Each step costs 0.04; the goal gives 1 and ends the episode, which is cut off after
//   # # # .      60 steps. Four choices: up, right, down, left; a wall or the edge stops a walk.
//   G . . .      Seen: row and column of the walker, from -1 to 1.
//
// The shortest way is 8 steps, a return of 1 - 7 * 0.04 = 0.72.

import { definePlugin } from "heddle/plugin-kit";

const MAP = ["S...", "###.", "G..."];
const MOVES = [
  [-1, 0],
  [0, 1],
  [1, 0],
  [0, -1],
];
const STEP_COST = 0.04;

/** @type {() => import("@heddle/training/environments/environment").Environment} */
function gridWorld() {
  let [row, column] = [0, 0];
  const look = (/** @type {Float32Array} */ seen) => seen.set([row - 1, column / 1.5 - 1]);
  return {
    name: "GridWorld-v0",
    observations: 2,
    actions: 4,
    continuous: false,
    maxSteps: 60,
    reset: (_random, seen) => {
      [row, column] = [0, 0];
      look(seen);
    },
    // By these a job that resumes continues where it was; they may be left out.
    snapshot: () => [row, column],
    restore: (numbers) => {
      [row = 0, column = 0] = numbers;
    },
    step: (action, seen) => {
      const [down, right] = MOVES[Number(action)];
      const under = MAP[row + down]?.[column + right];
      if (under !== undefined && under !== "#") [row, column] = [row + down, column + right];
      look(seen);
      const terminated = MAP[row][column] === "G";
      return { reward: terminated ? 1 : -STEP_COST, terminated };
    },
  };
}

export default definePlugin({
  name: "grid-world",
  version: "1.0.0",
  apiVersion: 1,
  capabilities: ["environments"],
  setup({ environments }) {
    environments.add("GridWorld-v0", gridWorld);
  },
});
