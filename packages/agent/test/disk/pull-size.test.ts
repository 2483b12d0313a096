/** The bytes that a pull is expected to add to the disk. */
import { silentLogger } from '@berth/kit/log';
import { expect, it } from 'vitest';
import { createPullSize } from '../../src/disk/pull-size.ts';
import type { Layer } from '../../src/registry/api.ts';
import type { Image } from '../../src/engine/docker.ts';
import { never } from '../data/share.ts';

const MB = 1_000_000;
const REPOSITORY = 'registry.test:5000/team/shop';
const digest = (n: number): string => `sha256:${String(n).padStart(64, '0')}`;
const layer = (n: number, megabytes: number): Layer => ({
  digest: digest(n),
  size: megabytes * MB,
});
const image = (n: number): Image => ({
  id: `i${n}`,
  created: n,
  refs: [`${REPOSITORY}:c${n}`, `${REPOSITORY}@${digest(n)}`],
});

/**
 * A registry with these images by digest, and an engine that has the images `here`, each of
 * `unpacked` bytes.
 */
function pullSize(
  manifests: Record<string, Layer[] | null | Error>,
  { here = [] as Image[], unpacked = null as number | null } = {},
) {
  const asked: string[] = [];
  const size = createPullSize({
    docker: {
      images: async (of) => (of === REPOSITORY ? here : []),
      imageSize: async () => unpacked,
    },
    layersOf: async (repository, reference) => {
      asked.push(`${repository} ${reference}`);
      const answer = manifests[reference] ?? null;
      if (answer instanceof Error) throw answer;
      return answer;
    },
    log: silentLogger(),
  });
  return { asked, of: (reference: string) => size(`${REPOSITORY}${reference}`, never) };
}

it('the first image of a project: its layers are compressed', async () => {
  const { of, asked } = pullSize({ [digest(1)]: [layer(10, 40), layer(11, 20)] });
  expect(await of(`@${digest(1)}`)).toBe(150 * MB);
  expect(asked).toEqual([`team/shop ${digest(1)}`]);
});

it('the next one: only new layers, as much larger unpacked as those of the newest image here', async () => {
  const manifests = {
    [digest(1)]: [layer(10, 40), layer(11, 20)],
    [digest(2)]: [layer(10, 40), layer(12, 30)],
  };
  const { of } = pullSize(manifests, { here: [image(0), image(1)], unpacked: 180 * MB });
  expect(await of(`@${digest(2)}`)).toBe(90 * MB);
});

it('an image by its tag, and a newest image that the registry lost', async () => {
  const { of } = pullSize({ c2: [layer(12, 30)] }, { here: [image(1)], unpacked: 180 * MB });
  expect(await of(':c2')).toBe(75 * MB);
});

it.each<[string, number | null, number]>([
  ['no size', null, 75],
  ['less than its compressed layers', 30, 30],
  ['a hundred times as much', 4_000, 600],
])('a newest image for which the engine tells %s', async (_, unpacked, expected) => {
  const manifests = { [digest(1)]: [layer(10, 40)], [digest(2)]: [layer(12, 30)] };
  const { of } = pullSize(manifests, {
    here: [image(1)],
    unpacked: unpacked === null ? null : unpacked * MB,
  });
  expect(await of(`@${digest(2)}`)).toBe(expected * MB);
});

it('is unknown if the registry does not answer or does not have the image: the pull tells why', async () => {
  expect(await pullSize({ [digest(1)]: new Error('503') }).of(`@${digest(1)}`)).toBe(0);
  expect(await pullSize({}).of(`@${digest(1)}`)).toBe(0);
});
