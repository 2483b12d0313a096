/** Faults of the registry. */
import type { GateMode } from '../registry-gate.ts';
import type { Row } from '../row.ts';

const fails = (mode: GateMode, fault: string, code: string, answer: string, quick?: true): Row => ({
  fault,
  answer: `\`failed\` (\`${code}\`): ${answer}`,
  invariants: ['settles', 'old-serves'],
  stage: 'main',
  ...(quick === undefined ? {} : { quick }),
  async run(stage) {
    stage.gate.behave(mode);
    try {
      await stage.ends(
        await stage.releaseBroken({ 'www/index.html': `never, ${mode}\n` }),
        'failed',
        code,
      );
    } finally {
      stage.gate.behave('serve');
    }
    await stage.ends(await stage.release(), 'running');
  },
});

export const REGISTRY_ROWS: readonly Row[] = [
  fails('down', 'registry down', 'registry_unreachable', 'the push gets no connection', true),
  fails('refuse', 'registry denies pushes', 'registry_refused', 'the registry answers 403'),
  fails(
    'refuse layers',
    'registry denies single layers',
    'registry_refused',
    'Docker would retry each layer for most of a minute; the builder asks the registry itself ' +
      'and stops within seconds',
  ),
  fails(
    'lose',
    'registry loses the manifest during the build',
    'image_pull_failed',
    'the registry has no manifest for the image that was just pushed',
  ),
  fails(
    'forget',
    'registry loses the manifest after the build',
    'image_pull_failed',
    'the node cannot pull the reported digest',
  ),
  {
    fault: 'registry slow',
    answer: 'the deployment takes longer and ends `running`; the agent renews its lease meanwhile',
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
