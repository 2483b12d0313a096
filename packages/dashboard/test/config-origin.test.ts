/** The words about settings that come from berth.toml. */
import { expect, test } from 'vitest';
import { originOf, originText } from '../src/parts/config-origin.ts';

const project = {
  config: {
    file: 'api/berth.toml',
    commit: `3f2a91c${'0'.repeat(33)}`,
    keys: ['health_path', 'env.LOG_LEVEL', 'build_args.A', 'build_args.B'],
  },
};

test.each([
  ['health_path', 'from api/berth.toml at 3f2a91c'],
  ['env.LOG_LEVEL', 'from api/berth.toml at 3f2a91c'],
  ['build_args', 'A, B from api/berth.toml at 3f2a91c'],
  ['env.LOG', null],
  ['cpus', null],
])('%s: %s', (field, text) => expect(originOf(project, field)).toBe(text));

test('without a file nothing is said', () => {
  expect(originText({ config: null })).toBeNull();
  expect(originText({})).toBeNull();
  expect(originOf({}, 'cpus')).toBeNull();
  expect(originText({ config: { ...project.config, commit: null } })).toBe('from api/berth.toml');
});
