/** Options of the docker command. */
import { expect, it } from 'vitest';
import { mountOption } from '../src/tools/docker.ts';

it.each([
  [{ source: '/svc/mounts/d/a', target: '/data/a', readonly: true }, 'type=bind,src=/svc/mounts/d/a,dst=/data/a,readonly'],
  [{ source: '/mnt/a, b', target: '/data/"x"', readonly: false }, 'type=bind,"src=/mnt/a, b","dst=/data/""x"""'],
])('mountOption(%j)', (mount, text) => expect(mountOption(mount)).toBe(text));
