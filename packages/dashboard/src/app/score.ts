/**
 * Scores how well typed letters match a label. The letters must occur in order; a match at the
 * start of a word counts more. Returns null if a letter is missing.
 */
export function score(label: string, typed: string): number | null {
  const text = label.toLowerCase();
  let at = 0;
  let points = 0;
  for (const letter of typed.toLowerCase().replaceAll(' ', '')) {
    const letterAt = text.indexOf(letter, at);
    if (letterAt < 0) return null;
    points += pointsOf(text, letterAt, at);
    at = letterAt + 1;
  }
  return points - text.length / 100;
}

/** `expectedAt`: the position right after the previous matched letter. */
function pointsOf(text: string, letterAt: number, expectedAt: number): 0 | 2 | 3 {
  if (letterAt === expectedAt) return 3;
  return letterAt === 0 || /[\s/.-]/.test(text[letterAt - 1] ?? '') ? 2 : 0;
}
