import type { MODERATION_CATEGORIES } from "@heddle/contracts/api/inference/moderations";
import type { GenerateRequest, TokenLogprob } from "@heddle/contracts/engine";

/** One of OpenAI's categories. */
export type ModerationCategory = (typeof MODERATION_CATEGORIES)[number];

/** What the question says of each category. */
const POLICIES: Readonly<Record<ModerationCategory, string>> = {
  harassment: "insults, bullying or humiliation of a person",
  "harassment/threatening": "threats to hurt the person who is insulted or harassed",
  hate: "hate against people for their race, religion, origin, gender, sexual orientation or disability",
  "hate/threatening":
    "violence or threats against people for their race, religion, origin, gender, sexual orientation or disability",
  illicit: "advice or instructions for crimes such as theft, fraud, drugs or hacking",
  "illicit/violent": "advice or instructions for weapons, explosives or violent crimes",
  "self-harm": "suicide, self-injury or eating disorders",
  "self-harm/intent": "a person who says that they want to hurt or kill themselves",
  "self-harm/instructions": "instructions or encouragement to hurt or kill oneself",
  sexual: "sexual acts, nudity or content that is meant to arouse",
  "sexual/minors": "sexual content about a person under 18 years",
  violence: "killing, injury or violence against people or animals",
  "violence/graphic": "death, violence or injuries in bloody detail",
};

/** Alternatives of the first token, the most that engines give. */
const ALTERNATIVES = 20;

/** The question whether a text has a category; the text comes first, so that its prefix is shared. */
export function judgeRequest(text: string, category: ModerationCategory): GenerateRequest {
  const content = `Check this text for unsafe content.

<TEXT>
${text}
</TEXT>

Category "${category}": ${POLICIES[category]}.
Does the text have unsafe content of this category? Answer yes or no.`;
  return {
    input: { kind: "chat", messages: [{ role: "user", content }] },
    sampling: {
      temperature: 0,
      topP: 1,
      presencePenalty: 0,
      frequencyPenalty: 0,
      logitBias: [],
    },
    choices: 1,
    maxTokens: 1,
    stop: [],
    topLogprobs: ALTERNATIVES,
    format: "text",
  };
}

/**
 * The share of yes in the probability of yes and no at the first token. What the alternatives lack
 * is at most as likely as the last of them. Undefined where they have neither.
 */
export function judgeScore({ token, logprob, top }: TokenLogprob): number | undefined {
  const all = top.some((each) => each.token === token) ? top : [{ token, logprob }, ...top];
  const floor = Math.exp(Math.min(...all.map((each) => each.logprob)));
  let [yes, no] = [0, 0];
  for (const each of all) {
    const word = each.token.trim().toLowerCase();
    if (word === "") continue;
    if ("yes".startsWith(word)) yes += Math.exp(each.logprob);
    else if ("no".startsWith(word)) no += Math.exp(each.logprob);
  }
  if (yes === 0 && no === 0) return undefined;
  const [likelyYes, likelyNo] = [yes || floor, no || floor];
  return likelyYes / (likelyYes + likelyNo);
}
