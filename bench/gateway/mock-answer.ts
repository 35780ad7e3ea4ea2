/** The answer that both mock engines give at once to every request. */
export const mockModel = "mock-instant";

/** Each delta is its own word, so that one that is lost or moved on the way is seen. */
export const mockDeltas: readonly string[] = Array.from({ length: 64 }, (_, i) => `w${i} `);

export const mockText = mockDeltas.join("");

export const mockUsage = { promptTokens: 64, completionTokens: mockDeltas.length };

/** The first word of a question that asks for one delta a step; any other asks for one in all. */
export const stepwise = "stepwise";

/** A chat request of an ordinary size, a system message and a question of about 60 words. */
export function mockRequest(stream: boolean): string {
  const words = Array.from({ length: 60 }, (_, i) => `word${i}`).join(" ");
  return JSON.stringify({
    model: mockModel,
    messages: [
      { role: "system", content: "You are a helpful assistant." },
      { role: "user", content: stream ? `${stepwise} ${words}` : words },
    ],
    max_tokens: 256,
    temperature: 0.7,
    stream,
  });
}
