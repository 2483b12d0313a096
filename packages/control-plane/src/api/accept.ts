/** Content negotiation by the Accept header (RFC 9110 section 12.5.1). */
import { trimOws } from '@berth/kit/ows';

type Range = { type: string; subtype: string; quality: number };
/**
 * Fit of a media type: compare the quality, then the exactness of the range, then its position (the
 * earlier range wins).
 */
type Fit = { quality: number; exactness: number; position: number };

/** Returns whether the client prefers `wanted` to `usual`; false if it accepts both equally. */
export function prefers(accept: string | undefined, wanted: string, usual: string): boolean {
  if (accept === undefined) return false;
  const ranges = splitUnquoted(accept, ',').flatMap(rangeOf);
  const wantedFit = fitOf(wanted, ranges);
  const usualFit = fitOf(usual, ranges);
  if (wantedFit === null || usualFit === null) return wantedFit !== null;
  if (wantedFit.quality !== usualFit.quality) return wantedFit.quality > usualFit.quality;
  if (wantedFit.exactness !== usualFit.exactness) return wantedFit.exactness > usualFit.exactness;
  return wantedFit.position < usualFit.position;
}

/** The weight of a range: 0 to 1 with at most three decimals (RFC 9110 section 12.4.2). */
const WEIGHT = /^q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/i;

/**
 * Parses one media range. Returns an empty list for invalid text and for a range with parameters,
 * because no answer has parameters.
 */
function rangeOf(text: string): Range[] {
  const [name = '', ...parameters] = splitUnquoted(text, ';').map(trimOws);
  const [, type, subtype] = /^([^\s/]+)\/([^\s/]+)$/.exec(name.toLowerCase()) ?? [];
  if (type === undefined || subtype === undefined) return [];
  const weights = parameters.flatMap((parameter) => WEIGHT.exec(parameter)?.[1] ?? []);
  if (weights.length < parameters.length) return [];
  const [weight = '1'] = weights;
  return [{ type, subtype, quality: Number(weight) }];
}

/**
 * Splits the text at the separator. A separator inside a quoted string (RFC 9110 section 5.6.4) is
 * a part of it. A quote that is never closed lasts to the end.
 */
function splitUnquoted(text: string, separator: ',' | ';'): string[] {
  const parts: string[] = [];
  let from = 0;
  let isQuoted = false;
  for (let at = 0; at < text.length; at += 1) {
    if (isQuoted && text[at] === '\\') at += 1;
    else if (text[at] === '"') isQuoted = !isQuoted;
    else if (!isQuoted && text[at] === separator) {
      parts.push(text.slice(from, at));
      from = at + 1;
    }
  }
  return [...parts, text.slice(from)];
}

/** Returns the fit of the most exact range; null if the client does not accept this type. */
function fitOf(mediaType: string, ranges: readonly Range[]): Fit | null {
  const [type, subtype] = mediaType.split('/');
  const fits = ranges.flatMap((range, position): Fit[] => {
    if (range.type === '*' && range.subtype === '*')
      return [{ quality: range.quality, exactness: 0, position }];
    if (range.type !== type) return [];
    if (range.subtype === '*') return [{ quality: range.quality, exactness: 1, position }];
    return range.subtype === subtype ? [{ quality: range.quality, exactness: 2, position }] : [];
  });
  const [best] = fits.toSorted((a, b) => b.exactness - a.exactness);
  return best !== undefined && best.quality > 0 ? best : null;
}
