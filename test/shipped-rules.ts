/**
 * The rules of the shipped proxy files for the host of Berth itself: which paths reach the control
 * plane, the gateway, or nothing.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseRule } from '../packages/proxy/src/rule.ts';

type Shipped = {
  file: string;
  /** Where the proxy leads the path; null: nowhere. */
  serviceOf: (path: string) => 'control plane' | 'gateway' | null;
  toControlPlane: (path: string) => boolean;
};

const HOST = 'berth.test';
const root = join(import.meta.dirname, '..');

/**
 * Traefik takes the longest rule among those of the same priority, and the length of the rule is
 * the priority without another one.
 */
function shipped(
  file: string,
  routers: readonly { rule: string; priority: number | null; service: string }[],
): Shipped {
  const ordered = routers
    .map(({ rule, priority, service }) => ({
      matches: parseRule(rule),
      service,
      weight: priority ?? rule.length,
    }))
    .toSorted((a, b) => b.weight - a.weight);
  const serviceOf = (path: string): ReturnType<Shipped['serviceOf']> => {
    const service = ordered.find(({ matches }) =>
      matches({ host: HOST, path, headers: {} }),
    )?.service;
    return service === undefined ? null : /gateway/.test(service) ? 'gateway' : 'control plane';
  };
  return { file, serviceOf, toControlPlane: (path) => serviceOf(path) === 'control plane' };
}

async function ofCompose(): Promise<Shipped> {
  const file = 'deploy/compose.yml';
  const labels = [
    ...(await readFile(join(root, file), 'utf8')).matchAll(
      /^ +traefik\.http\.routers\.([\w-]+)\.(\w+): (.*)$/gm,
    ),
  ];
  const names = new Set(labels.map(([, name = '']) => name));
  const of = (name: string, field: string): string | undefined =>
    labels.find(([, one, key]) => one === name && key === field)?.[3];
  const routers = [...names].flatMap((name) => {
    const rule = of(name, 'rule')?.replaceAll('${BASE_DOMAIN}', HOST);
    if (rule?.includes(`Host(\`${HOST}\`)`) !== true || of(name, 'entrypoints') !== 'websecure')
      return [];
    const priority = of(name, 'priority');
    return [
      {
        rule,
        priority: priority === undefined ? null : Number(priority.replaceAll('"', '')),
        service: of(name, 'service') ?? name,
      },
    ];
  });
  return shipped(file, routers);
}

async function ofFiles(): Promise<Shipped> {
  const file = 'deploy/traefik/dynamic/auth-host.yml';
  const text = await readFile(join(root, file), 'utf8');
  const blocks = text.slice(0, text.indexOf('\n  services:')).split(/^ {4}(?=[\w-]+:$)/m);
  const routers = blocks.flatMap((block) => {
    const rule = /^ +rule: '(.*)'$/m.exec(block)?.[1]?.replaceAll('{{ env "BASE_DOMAIN" }}', HOST);
    if (rule === undefined || !block.includes('[websecure]')) return [];
    const priority = /^ +priority: (\d+)$/m.exec(block)?.[1];
    return [
      {
        rule,
        priority: priority === undefined ? null : Number(priority),
        service: /^ +service: (\S+)$/m.exec(block)?.[1] ?? '',
      },
    ];
  });
  return shipped(file, routers);
}

/**
 * `berth install` writes deploy/traefik/dynamic/auth-host.yml as it is, or starts
 * deploy/compose.yml.
 */
export const shippedRules = (): Promise<Shipped[]> => Promise.all([ofCompose(), ofFiles()]);
