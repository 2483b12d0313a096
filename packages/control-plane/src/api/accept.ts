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
  const ranges = accept.split(',').flatMap(rangeOf);
  const wantedFit = fitOf(wanted, ranges);
  const usualFit = fitOf(usual, ranges);
  if (wantedFit === null || usualFit === null) return wantedFit !== null;
  if (wantedFit.quality !== usualFit.quality) return wantedFit.quality > usualFit.quality;
  if (wantedFit.exactness !== usualFit.exactness) return wantedFit.exactness > usualFit.exactness;
  return wantedFit.position < usualFit.position;
}

/**
 * Parses one media range. Returns an empty list for invalid text and for a range with parameters,
 * because no answer has parameters.
 */
function rangeOf(text: string): Range[] {
  const [name = '', ...parameters] = text.split(';').map(trimOws);
  const [, type, subtype] = /^([^\s/]+)\/([^\s/]+)$/.exec(name.toLowerCase()) ?? [];
  if (type === undefined || subtype === undefined) return [];
  const weights = parameters.filter((parameter) => /^q=/i.test(parameter));
  if (weights.length < parameters.length) return [];
  const [weight = 'q=1'] = weights;
  return [{ type, subtype, quality: Number.parseFloat(weight.slice(2)) }];
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
