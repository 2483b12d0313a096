/** What befalls the registry. */
import type { GateMode } from '../registry-gate.ts';
import type { Row } from '../row.ts';

const fails = (mode: GateMode, fault: string, code: string, answer: string, quick?: true): Row => ({
  fault,
  answer: `\`failed\` (\`${code}\`): ${answer}; the old version serves; the next deployment works when the registry does`,
  invariants: ['settles', 'old-serves'],
  stage: 'main',
  ...(quick === undefined ? {} : { quick }),
  async run(stage) {
    stage.gate.behave(mode);
    try {
      await stage.ends(await stage.releaseIll({ 'www/index.html': `never, ${mode}\n` }), 'failed', code);
    } finally {
      stage.gate.behave('serve');
    }
    await stage.ends(await stage.release(), 'running');
  },
});

export const REGISTRY_ROWS: readonly Row[] = [
  fails('down', 'registry down', 'registry_unreachable', 'the push finds nobody', true),
  fails('refuse', 'registry refuses', 'registry_refused', 'it denies the push (403)'),
  fails(
    'refuse layers',
    'registry refuses layers',
    'registry_refused',
    'docker would try each layer again for most of a minute; the builder asks the registry itself and ends it in seconds',
  ),
  fails('lose', 'manifest unknown to the builder itself', 'image_pull_failed', 'the registry does not have what was pushed a moment ago'),
  fails(
    'forget',
    'digest missing after the push (the registry lost the manifest)',
    'image_pull_failed',
    'the node cannot pull what was reported',
  ),
  {
    fault: 'registry slow',
    answer: 'the deployment takes longer and ends `running`; its lease is renewed meanwhile',
    invariants: ['settles', 'one-lease'],
    stage: 'main',
    async run(stage) {
      stage.gate.behave('slow');
      try {
        await stage.ends(await stage.release(), 'running');
      } finally {
        stage.gate.behave('serve');
      }
    },
  },
];
