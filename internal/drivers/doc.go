// SPDX-License-Identifier: Apache-2.0

/*
Package drivers says with which drivers of network cards culvert works. Its tests run in guests with emulated cards
(internal/guest/cards): 'make test-drivers'. Each card under test is in one network namespace, with culvert. What a card is
joined to is in another one, and sends and receives frames.
*/
package drivers
