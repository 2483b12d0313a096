/** The settings of the agent. */
import { expect, it } from 'vitest';
import { readConfig } from '../src/config.ts';

const good = { NODE_ROLE: 'builder', CONTROL_PLANE_URL: 'http://10.0.0.1:8080/' };
it('has the documented defaults', () => {
  expect(readConfig(good)).toMatchObject({
    NODE_ROLE: 'builder',
    CONTROL_PLANE_URL: 'http://10.0.0.1:8080',
    STATE_DIR: '/var/lib/berth-agent',
    SVC_ROOT: '/svc/data',
    MAX_BUILDS: 2,
    REGISTRY_RESTART: ['systemctl', 'restart', 'berth-registry.service'],
    BUILD_TIMEOUT: 1_800_000,
  });
});
it('names all wrong variables at once', () => {
  expect(() =>
    readConfig({
      NODE_ROLE: 'cook',
      MAX_BUILDS: '0',
      LISTEN: 'x',
      STATE_DIR: 'here',
      BUILD_TIMEOUT: '3',
      PUBLISH_IP: 'host',
    }),
  ).toThrow(
    /NODE_ROLE[^]*CONTROL_PLANE_URL[^]*PUBLISH_IP[^]*STATE_DIR[^]*LISTEN[^]*MAX_BUILDS[^]*BUILD_TIMEOUT/,
  );
});
it('refuses a low watermark above the high one', () => {
  expect(readConfig(good)).toMatchObject({
    CACHE_HIGH: 90,
    CACHE_LOW: 80,
    COPY_TIMEOUT: 21_600_000,
    COPY_STALL: 60_000,
    COPIES_AT_ONCE: 2,
    KEEP_VERSIONS: 3,
  });
  expect(() => readConfig({ ...good, CACHE_HIGH: '70' })).toThrow(
    /CACHE_LOW: must not exceed CACHE_HIGH, which is 70/,
  );
  expect(() => readConfig({ ...good, COPY_BANDWIDTH: '10 m' })).toThrow(/COPY_BANDWIDTH/);
  expect(readConfig({ ...good, COPY_BANDWIDTH: '1.5m' }).COPY_BANDWIDTH).toBe('1.5m');
});
it('reads several secrets, the current one first, and inherits few variables', () => {
  const config = readConfig({ ...good, AGENT_SECRET: 'new, old', PATH: '/bin', EVIL: 'x' });
  expect(config.AGENT_SECRET).toEqual(['new', 'old']);
  expect(config.inherit).toEqual({ PATH: '/bin' });
});
it('REGISTRY_URL is the address of a server, without a path', () => {
  expect(readConfig({ ...good, REGISTRY_URL: 'http://registry:5000/' }).REGISTRY_URL).toBe(
    'http://registry:5000',
  );
  for (const wrong of [
    'registry:5000',
    'http://registry/v2',
    'http://me:secret@registry',
    'http://registry?x=1',
  ])
    expect(() => readConfig({ ...good, REGISTRY_URL: wrong }), wrong).toThrow(
      /REGISTRY_URL: must be an http or https URL/,
    );
  // In compose, an empty value switches the clean-up off.
  expect(readConfig({ ...good, REGISTRY_CONFIG: '' }).REGISTRY_CONFIG).toBeUndefined();
});
it('PUBLISH_PORTS is a range that no small service has, and large enough to rotate', () => {
  expect(readConfig(good).PUBLISH_PORTS).toEqual({ first: 20_000, last: 29_999 });
  expect(readConfig({ ...good, PUBLISH_PORTS: '1024-1123' }).PUBLISH_PORTS).toEqual({
    first: 1024,
    last: 1123,
  });
  for (const wrong of [
    '20000',
    '20000-20098',
    '29999-20000',
    '80-9000',
    '65000-65536',
    '0-0',
    '20000:29999',
    '-1-500',
    'a-b',
    '20000-29999-30000',
  ])
    expect(() => readConfig({ ...good, PUBLISH_PORTS: wrong }), wrong).toThrow(
      /PUBLISH_PORTS: must be a first and a last port/,
    );
});
it('NODE_LABELS has names and values; an error names the rule', () => {
  const labels = (NODE_LABELS: string) => readConfig({ ...good, NODE_LABELS }).NODE_LABELS;
  expect(readConfig(good).NODE_LABELS).toBeUndefined();
  expect(labels('zone=a, example.com/disk=nvme')).toEqual({
    zone: 'a',
    'example.com/disk': 'nvme',
  });
  expect(() => labels('zone')).toThrow(/NODE_LABELS: must be name=value/);
  expect(() => labels('-zone=a')).toThrow(/NODE_LABELS: the name of a label must have letters/);
  expect(() => labels('zone=a b')).toThrow(/NODE_LABELS: the value of the label zone must have/);
  expect(() => labels('zone=a,zone=b')).toThrow(/the label zone must be named only once/);
});
