/**
 * Removes the values of a task's secrets from text that the agent sends or logs. It finds a value
 * as it is, each line of a multi-line value, and the value in base64 (also inside a longer base64
 * text), in JSON and in a URL. It searches only the original text, so a value that contains the
 * mark, or overlaps another value, is removed completely. Limits (docs/secrets.md "Redaction"):
 * values shorter than 6 characters, and values that a program changes or splits over lines.
 */

import { cutAt } from '@berth/kit/lines';

export type Redact = (text: string) => string;

const MARK = '***';
/** Minimum length of a value. A shorter value would remove harmless text from every line. */
const SHORTEST = 6;

/** Returns a function that removes these values; without values, it returns the text unchanged. */
export function createRedact(values: readonly string[]): Redact {
  const forms = [...new Set(values.flatMap(formsOf))].filter((form) => form.length >= SHORTEST);
  if (forms.length === 0) return (text) => text;
  // Index the values by their first characters, so that the time does not depend on their number.
  const byStart = Map.groupBy(forms, (form) => form.slice(0, SHORTEST));
  for (const group of byStart.values()) group.sort((a, b) => b.length - a.length);

  /**
   * Returns the end of the longest value that starts here. `end`: the end of the text, if it was
   * cut there.
   */
  function endOf(text: string, at: number, end: number | null): number | null {
    const group = byStart.get(text.slice(at, at + SHORTEST));
    if (group === undefined) return null;
    const matchingForm = group.find((form) => text.startsWith(form, at));
    if (matchingForm !== undefined) return at + matchingForm.length;
    return end !== null && group.some((form) => form.startsWith(text.slice(at, end))) ? end : null;
  }

  return (text) => {
    // A cut line can end with the beginning of a value.
    const cut = cutAt(text);
    let result = '';
    let from = 0;
    for (let at = 0; at + SHORTEST <= text.length; at++) {
      let end = endOf(text, at, cut);
      if (end === null) continue;
      const start = at;
      // A value that begins inside this value belongs to the same mark.
      for (let inside = at + 1; inside < end; inside++)
        end = Math.max(end, endOf(text, inside, cut) ?? 0);
      result += text.slice(from, start) + MARK;
      from = end;
      at = end - 1;
    }
    return from === 0 ? text : result + text.slice(from);
  };
}

/**
 * Removes the values from an error for the agent's own log. Leaves out other fields of the error,
 * because they contain output.
 */
export function redactError(error: unknown, redact: Redact): unknown {
  if (!(error instanceof Error)) return redact(String(error));
  const shown = new Error(
    redact(error.message),
    error.cause === undefined ? {} : { cause: redactError(error.cause, redact) },
  );
  shown.name = error.name;
  shown.stack = redact(error.stack ?? '');
  return shown;
}

function formsOf(value: string): string[] {
  const trimmed = value.trim();
  const texts = [value, trimmed, ...lines(value)];
  return [
    ...texts,
    ...[value, trimmed, `${trimmed}\n`].flatMap(inBase64),
    ...texts.flatMap((text) => [JSON.stringify(text).slice(1, -1), encodeURIComponent(text)]),
  ];
}
const lines = (value: string): string[] => value.split(/\r\n|[\r\n]/).map((line) => line.trim());

/**
 * Returns the text in base64: alone, and at each offset in a longer text, without the characters
 * that depend on neighbouring text.
 */
function inBase64(text: string): string[] {
  const bytes = Buffer.from(text);
  const parts = [0, 1, 2].flatMap((before) => {
    const padded = Buffer.concat([Buffer.alloc(before), bytes]);
    const [from, to] = [Math.ceil((before * 8) / 6), Math.floor((padded.length * 8) / 6)];
    return (['base64', 'base64url'] as const).map((alphabet) =>
      padded.toString(alphabet).slice(from, to),
    );
  });
  return [bytes.toString('base64'), bytes.toString('base64url'), ...parts];
}
