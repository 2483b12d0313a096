import { expect, test } from 'vitest';
import { nodeWarning } from '../src/version.ts';

test.each(['24.0.0', '24.21.0', '24.22.0', '26.10.0', '26.12.0'])(
  'Node.js %s lacks security fixes',
  (version) => {
    expect(nodeWarning(version)).toMatch(
      new RegExp(
        `^Node\\.js ${version} lacks security fixes: run Berth with ` +
          `${version.startsWith('24') ? '24.22.1' : '26.12.1'} or newer$`,
      ),
    );
  },
);

test.each(['24.22.1', '24.22.2', '24.30.0', '26.12.1', '26.13.0', '28.0.0', '25.1.0'])(
  'Node.js %s has them',
  (version) => {
    expect(nodeWarning(version)).toBeNull();
  },
);
