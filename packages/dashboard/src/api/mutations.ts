/**
 * Mutations: each one is a request with its progress and its error. The page shows the new state
 * when the control plane has stored it.
 */
import { useMutation } from '@tanstack/react-query';
import { useRef } from 'react';
import { ApiError, type CallInput } from '@berth/wire/client';
import type { AnswerOf, RouteName } from '@berth/wire/routes';
import { call } from './client.ts';
import { queries } from './queries.ts';

export type ApiMutation<N extends RouteName> = {
  run: (input: CallInput<N>) => Promise<AnswerOf<N> | null>;
  busy: boolean;
  error: unknown;
  /** Time in ms at which the person made the change; 0 if there was none yet. */
  startedAt: number;
  reset: () => void;
};

/**
 * `run` returns null after an error (then `error` is set), and for a change that is already
 * running. `once`: treats any second change as the running one, for a form whose input contains the
 * current time.
 */
export function useApiMutation<N extends RouteName>(
  name: N,
  then?: (answer: AnswerOf<N>) => void,
  { once = false }: { once?: boolean } = {},
): ApiMutation<N> {
  const mutation = useMutation({
    mutationFn: (input: CallInput<N>) => call(name, input),
    onSuccess: (answer) => {
      void queries.invalidateQueries();
      then?.(answer);
    },
    onError: (error) => {
      // Refetch, so that the page shows the other person's values beside the typed text.
      if (error instanceof ApiError && error.code === 'changed_meanwhile')
        void queries.invalidateQueries();
    },
  });
  /** Keys of running changes. An equal change is a double click, or a second Enter. */
  const running = useRef(new Set<string>());
  return {
    run: async (input) => {
      const key = once ? '' : JSON.stringify(input);
      if (running.current.has(key)) return null;
      running.current.add(key);
      try {
        return await mutation.mutateAsync(input);
      } catch {
        return null;
      } finally {
        running.current.delete(key);
      }
    },
    busy: mutation.isPending,
    error: mutation.error,
    startedAt: mutation.submittedAt,
    reset: mutation.reset,
  };
}

/**
 * Returns the error of the most recent change, for changes that show their errors in one place.
 * Errors of older changes are ignored.
 */
export const errorOfLast = (
  ...changes: readonly Pick<ApiMutation<RouteName>, 'error' | 'startedAt'>[]
): unknown => changes.toSorted((a, b) => b.startedAt - a.startedAt)[0]?.error;
