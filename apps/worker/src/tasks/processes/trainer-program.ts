import { fileURLToPath } from "node:url";

/** A program of the trainer, which is an app of its own: compiled code beside this app's folder. */
export function trainerProgram(name: string): string {
  return fileURLToPath(new URL(`../../../../trainer/dist/${name}.js`, import.meta.url));
}
