import type { INestApplicationContext, INestMicroservice } from "@nestjs/common";

/** Closes a context; rejects with what a hook threw, which Nest would only log. */
export async function closeContext(
  context: INestApplicationContext | INestMicroservice,
): Promise<void> {
  const thrown: unknown[] = [];
  const ignore = () => undefined;
  context.useLogger({ error: (reason) => thrown.push(reason), log: ignore, warn: ignore });
  await context.close();
  if (thrown.length > 0) throw thrown[0];
}
